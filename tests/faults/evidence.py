"""What the fault tests know about a run: what clients saw, what reached the tools, and what the database holds.

Plain values with their files (JSON lines); who makes them stands in history.py, tool_service.py and dump.py.
Times are seconds since 1970 on the one clock of this machine.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import yaml

MICRO = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One request of a client, from its beginning to what the client learned."""

    n: int
    agent: str
    subject: str
    run_id: str
    tool: str
    args: Mapping[str, Any]
    key: str | None
    gateway: str
    began: float
    ended: float | None = None
    type: Literal["ok", "fail", "info"] = "info"
    """ok: an answer came; fail: certainly nothing was done; info: nobody knows."""
    http: int | None = None
    answer: Mapping[str, Any] | None = None
    why: str | None = None

    @property
    def status(self) -> str | None:
        """The status of the result, where an answer came."""
        return self.answer["result"]["status"] if self.answer else None

    @property
    def decision_id(self) -> str | None:
        """The decision that the answer names."""
        return self.answer["decision_id"] if self.answer else None

    @property
    def payload(self) -> str:
        """What makes two requests the same call."""
        return json.dumps([self.tool, self.subject, dict(self.args)], sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Nemesis:
    """Something that was done to the system."""

    at: float
    what: str
    target: str


@dataclass(frozen=True, kw_only=True)
class History:
    """All operations, and what was done to the system meanwhile."""

    operations: tuple[Operation, ...] = ()
    nemeses: tuple[Nemesis, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One line of the effect ledger: a request arrived, was applied, or was answered to the end."""

    event: Literal["arrival", "applied", "answered"]
    at: float
    tool: str
    call_id: str
    key: str | None
    action: str
    digest: str
    mode: str
    is_admitted: bool | None = None
    """What the tool itself saw in the database when the request arrived; None where it could not look."""


@dataclass(frozen=True, kw_only=True)
class Call:
    id: str
    agent: str
    subject: str
    run_id: str
    tool: str
    state: str
    admitted_at: float
    lease_until: float | None


@dataclass(frozen=True, kw_only=True)
class Hold:
    call_id: str
    budget: tuple[str, str, str]
    amount: int
    state: str
    settled: int


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    budget: tuple[str, str, str]
    reserved: int
    spent: int


@dataclass(frozen=True, kw_only=True)
class Record:
    id: str
    position: int
    at: float
    kind: str
    about: str | None
    body: bytes
    leaf: bytes
    document: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class KeyClaim:
    """A transport key and the call that holds it now."""

    call_id: str
    expires_at: float | None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A request to a person; the decision that first asked has its id."""

    id: str
    state: str
    consumed_by: str | None


@dataclass(frozen=True, kw_only=True)
class Dump:
    """The database at one moment, read in one snapshot."""

    taken_at: float
    calls: tuple[Call, ...] = ()
    holds: tuple[Hold, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    records: tuple[Record, ...] = ()
    claims: tuple[KeyClaim, ...] = ()
    grants: tuple[Grant, ...] = ()
    log_size: int = 0
    deadlocks: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolFacts:
    """What the bundle says of a tool, as far as invariants depend on it."""

    replay: str
    is_read: bool
    timeout_s: float
    costs: Mapping[str, int] = field(default_factory=dict[str, int])
    has_business_key: bool = False
    is_once_per_subject: bool = False
    needs_person: bool = False


@dataclass(frozen=True, kw_only=True)
class BudgetFacts:
    unit: str
    limit: int
    per: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Tools and budgets of the bundle that ran."""

    tools: Mapping[str, ToolFacts]
    budgets: Mapping[str, BudgetFacts]


def read_setup(bundle: Path) -> Setup:
    """Tools and budgets of a bundle folder, read without the gateway's own code."""
    declared = [yaml.safe_load(path.read_text()) for path in sorted((bundle / "tools").glob("*.yaml"))]
    budgets: list[dict[str, Any]] = yaml.safe_load((bundle / "budgets.yaml").read_text())
    return Setup(
        tools={tool["name"]: _tool_facts(tool) for tool in declared},
        budgets={
            budget["name"]: BudgetFacts(
                unit=budget["unit"],
                limit=int(Decimal(str(budget["limit"])) * MICRO),
                per=tuple(budget["per"]),
                tools=tuple(budget["tools"]),
            )
            for budget in budgets
        },
    )


def _tool_facts(tool: dict[str, Any]) -> ToolFacts:
    return ToolFacts(
        replay=tool["replay"],
        is_read=tool["risk"] == "read",
        timeout_s=int(tool["timeout"].removesuffix("ms")) / 1000,
        costs={unit: int(Decimal(amount) * MICRO) for unit, amount in tool.get("cost", {}).items()},
        has_business_key=isinstance(tool.get("idempotency"), dict),
        is_once_per_subject=tool["name"] == "send",
        needs_person=tool["name"] == "write_agreed",
    )


class JsonLines:
    """An append-only file of JSON lines, each on the disk before `write` returns when `sync` is set."""

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._sync = sync

    def write(self, value: Mapping[str, Any]) -> None:
        """Append one line."""
        os.write(self._file, json.dumps(value, separators=(",", ":")).encode() + b"\n")
        if self._sync:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file; a torn last line is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def read_effects(path: Path) -> list[Effect]:
    """The effect ledger."""
    return [Effect(**line) for line in read_lines(path)]


def write_all(path: Path, values: Iterable[Any]) -> None:
    """Values as JSON lines, bytes as hex: what is kept of a run that went wrong."""
    path.write_text("".join(json.dumps(asdict(value), default=_plain) + "\n" for value in values))


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
