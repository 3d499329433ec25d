"""What a bundle declares: tools, workflows, principals, budgets, reason codes, and the whole as one revision.

The models are the file formats of the bundle (`gateway.bundle` reads them) and the values that stages work with.
All are frozen and refuse unknown fields.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gateway.domain.reasons import EFFECT_STATUS, Effect, ReasonCode, Status

MICRO = 1_000_000
"""Amounts are integers in millionths of their unit inside the gateway."""

_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: object) -> float:
    """Read a duration such as ``8s``, ``30m``, ``24h`` into seconds; ValueError for anything else."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        msg = "must be a duration such as 500ms, 8s, 30m, 24h or 7d"
        raise ValueError(msg)
    return int(match[1]) * _SECONDS[match[2]]


def parse_amount(value: object) -> int:
    """Read a decimal amount (a string such as ``"500.00"``, or an integer) into micro-units; ValueError otherwise."""
    msg = 'must be a decimal in quotes with at most 6 decimals, such as "500.00", from 0 to 9,000,000,000'
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports ValueErrors
    try:
        micro = Decimal(value) * MICRO
    except ArithmeticError:
        raise ValueError(msg) from None
    if not micro.is_finite() or micro != micro.to_integral_value() or not 0 <= micro <= 9_000_000_000 * MICRO:
        raise ValueError(msg)
    return int(micro)


Duration = Annotated[float, BeforeValidator(parse_duration)]
Amount = Annotated[int, BeforeValidator(parse_amount)]
ToolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,47}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$")]
Permission = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*:[a-z][a-z0-9_.-]*$", max_length=100)]
Reference = Annotated[
    str, Field(pattern=r"^(args|context)\.[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$|^subject$|^agent$|^run_id$|^downstream_key$")
]
"""A template field: ``args.city``, ``context.requestVersion``, ``subject``, ``agent``, ``run_id``, ``downstream_key``."""


class Declaration(BaseModel):
    """Base of every declaration: frozen, strict, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Risk(StrEnum):
    """What a tool can do to the world, in rising order."""

    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"

    @property
    def level(self) -> int:
        """0 for read, 1 for write, 2 for irreversible."""
        return ("read", "write", "irreversible").index(self.value)


class Replay(StrEnum):
    """What a tool allows after an unknown outcome."""

    SAFE = "safe"
    KEYED = "keyed"
    PROBE = "probe"
    NEVER = "never"


def _as_enum(kind: type[StrEnum]) -> BeforeValidator:
    return BeforeValidator(lambda value: kind(value) if isinstance(value, str) else value)


RiskField = Annotated[Risk, _as_enum(Risk)]
ReplayField = Annotated[Replay, _as_enum(Replay)]
EffectField = Annotated[Effect, _as_enum(Effect)]


class HttpBody(Declaration):
    """The body of a request: ``{json: args}`` for all arguments, or ``{json: {field: args.x, …}}``."""

    json_: Literal["args"] | dict[str, Reference] = Field(alias="json")


class HttpRequest(Declaration):
    """One HTTP request to a connection of the operator. Path templates: ``/bookings/{args.bookingRef}``."""

    connection: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: Annotated[str, Field(pattern=r"^/", max_length=500)]
    query: dict[str, Reference] = {}
    body: HttpBody | None = None


class ClientAction(Declaration):
    """A tool that the agent's client performs, and what kind of thing it does."""

    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,47}$")]


class Execute(Declaration):
    """How a tool runs: exactly one of http, python, client (mcp is refused until it is built)."""

    http: HttpRequest | None = None
    python: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    client: ClientAction | None = None
    mcp: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(way is not None for way in (self.http, self.python, self.client, self.mcp)) != 1:
            msg = "name exactly one way to run: http, python or client"
            raise ValueError(msg)
        return self

    @property
    def kind(self) -> Literal["http", "python", "client", "mcp"]:
        """Which executor performs the tool."""
        if self.http is not None:
            return "http"
        if self.python is not None:
            return "python"
        return "client" if self.client is not None else "mcp"


class AnswerClass(Declaration):
    """Answers that belong to a class: by HTTP status, or because the array at a JSON pointer is empty."""

    status: list[Annotated[int, Field(ge=100, le=599)]] = []
    empty: Annotated[str, Field(pattern=r"^(/.*)?$")] | None = None


class ResultRules(Declaration):
    """How a tool's answers are read; what is not named falls into the default classes of HTTP."""

    no_match: AnswerClass | None = None
    failed: AnswerClass | None = None
    no_effect: AnswerClass | None = None
    output: dict[str, Any] | None = None


class Keyed(Declaration):
    """The header that carries our key downstream, and how long the service remembers it (seconds)."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
    retention: Duration


class Probe(Declaration):
    """How to ask whether a call happened; a "no" counts only `settle` seconds after the call."""

    http: HttpRequest
    found: AnswerClass
    not_found: AnswerClass
    settle: Duration


class BusinessKey(Declaration):
    """The values that make two calls the same action, and for how long (seconds after it ended)."""

    key: Annotated[list[Reference], Field(min_length=1, max_length=16)]
    window: Duration


class CostFromArgument(Declaration):
    """A cost that stands in the arguments, at a JSON pointer."""

    arg: Annotated[str, Field(pattern=r"^/")]


class CostFromResult(Declaration):
    """An actual cost that stands in the tool's answer, at a JSON pointer."""

    result: Annotated[str, Field(pattern=r"^/")]


class Record(Declaration):
    """What of a call is kept for auditors: ``metadata``, ``arguments`` (with policy input) or ``full`` (with result)."""

    level: Literal["metadata", "arguments", "full"] = "metadata"
    redact: list[Annotated[str, Field(pattern=r"^/(args|result)(/.*)?$")]] = []


class ToolDeclaration(Declaration):
    """One file of ``tools/``: the only place where a tool is described."""

    name: ToolName
    title: Annotated[str, Field(min_length=1, max_length=100)]
    progress: Annotated[str, Field(max_length=100)] | None = None
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    risk: RiskField
    permissions: Annotated[list[Permission], Field(min_length=1)]
    parameters: dict[str, Any]
    timeout: Duration = 10.0
    replay: ReplayField | None = None
    keyed: Keyed | None = None
    probe: Probe | None = None
    idempotency: Literal["caller"] | BusinessKey | None = None
    cost: dict[str, CostFromArgument | Amount] = {}
    actual: dict[str, CostFromResult] = {}
    execute: Execute
    result: ResultRules = ResultRules()
    record: Record = Record()
    facts: Literal["all", "none"] = "all"
    exposed: bool = True


class Confirmation(Declaration):
    """Who must agree when policy asks for a person: ``self``, one ``other`` or ``two`` others; for how long (seconds)."""

    rule: Literal["self", "other", "two"]
    permission: Permission
    valid_for: Duration


class WorkflowDeclaration(Declaration):
    """One entry of ``workflows.yaml``: what an agent is doing, and with which tools up to which risk."""

    tools: Annotated[list[ToolName], Field(min_length=1)]
    max_risk: RiskField
    context: dict[str, Any] | None = None
    confirmation: Confirmation | None = None


class AgentGrant(Declaration):
    """What an authenticated agent was granted. `act_for`: subjects by name, ``*`` for all, ``jwt`` for the token's own."""

    workflows: list[Name]
    permissions: list[Permission]
    act_for: Literal["*", "jwt"] | list[Name]


class SubjectGrant(Declaration):
    """The person or service on whose behalf an agent acts."""

    permissions: list[Permission]
    attributes: dict[str, Any] = {}


class PersonGrant(Declaration):
    """A person who may approve."""

    permissions: list[Permission]


class Principals(Declaration):
    """``principals.yaml``."""

    agents: dict[Name, AgentGrant]
    subjects: dict[Name, SubjectGrant] = {}
    persons: dict[Name, PersonGrant] = {}


class Window(Declaration):
    """A fixed budget window that starts at local midnight (or the hour) of its own time zone."""

    every: Literal["hour", "day", "week", "month"]
    timezone: str = "UTC"


Per = Literal["run", "subject", "agent", "tenant", "workflow", "tool"]
BudgetKind = Literal["amount", "rate", "concurrency"]


Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Rate(Declaration):
    """At most `limit` calls in `per` seconds on average, and `burst` of them (the limit where it says nothing) at once."""

    limit: Count
    per: Duration
    burst: Count | None = None


class Budget(Declaration):
    """One entry of ``budgets.yaml``; exactly one of `limit` (an amount of `unit`), `rate` and `concurrency` (calls at once).

    `unit` is ``calls`` or a unit of tools' ``cost``; `limit` is in micro-units of it. Unit and window belong to amounts only.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    per: Annotated[list[Per], Field(min_length=1)]
    unit: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")] | None = None
    limit: Amount | None = None
    rate: Rate | None = None
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    window: Window | None = None
    tools: list[ToolName] | None = None
    workflows: list[Name] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.limit, self.rate, self.concurrency)) != 1:
            msg = "must say exactly one of `limit`, `rate` and `concurrency`"
            raise ValueError(msg)
        if self.limit is not None and self.unit is None:
            msg = "must say the `unit` of its `limit`, such as `calls` or `usd`"
            raise ValueError(msg)
        for name, value in (("unit", self.unit), ("window", self.window)):
            if self.limit is None and value is not None:
                msg = f"must not say `{name}`: only a `limit` has one"
                raise ValueError(msg)
        return self

    @property
    def kind(self) -> BudgetKind:
        """What is limited: an amount, the rate of calls, or how many run at once."""
        if self.rate is not None:
            return "rate"
        return "amount" if self.concurrency is None else "concurrency"


class OwnReason(Declaration):
    """A reason code of the bundle's own."""

    code: Annotated[str, Field(pattern=r"^X_[A-Z0-9_]{1,61}$")]
    effect: EffectField
    message: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def status(self) -> Status | None:
        """The status a result with this code has; None for an allow."""
        return EFFECT_STATUS[self.effect]


class BundleDeclaration(Declaration):
    """``bundle.yaml``."""

    name: Name
    description: Annotated[str, Field(max_length=1000)] = ""
    reason_codes: Annotated[list[OwnReason], Field(max_length=64)] = []


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """One thing that is wrong with an argument: where (JSON pointer) and what, never the value."""

    path: str
    message: str


class Validator(Protocol):
    """A compiled JSON Schema."""

    def errors(self, value: object) -> tuple[FieldError, ...]:
        """What is wrong with `value`, at most 20 entries, empty when it fits. Never contains a value of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool of an activated bundle: its declaration, its digest and its compiled schemas."""

    declaration: ToolDeclaration
    digest: str
    """``sha256:…`` of the declaration as canonical JSON: any change of the tool changes it."""
    arguments: Validator
    output: Validator | None

    @property
    def name(self) -> str:
        """The catalogue name."""
        return self.declaration.name

    @property
    def replay(self) -> Replay:
        """The declared class; a read is safe unless it says otherwise, anything else is never."""
        declared = self.declaration
        return declared.replay or (Replay.SAFE if declared.risk is Risk.READ else Replay.NEVER)


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow of an activated bundle with its compiled context schema."""

    name: str
    declaration: WorkflowDeclaration
    context: Validator


@dataclass(frozen=True, kw_only=True)
class PolicySet:
    """What a policy engine loads: Rego modules (ours, generated and the authors') and data, under one revision."""

    revision: str
    modules: Mapping[str, str]
    """File name -> Rego source."""
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One checked revision: everything that decides about calls, activated together or not at all."""

    name: str
    revision: str
    """``sha256:…`` over the names and bytes of all files of the folder."""
    tools: Mapping[str, Tool]
    workflows: Mapping[str, Workflow]
    agents: Mapping[str, AgentGrant]
    subjects: Mapping[str, SubjectGrant]
    persons: Mapping[str, PersonGrant]
    budgets: tuple[Budget, ...]
    own_reasons: Mapping[str, OwnReason]
    policy: PolicySet

    def knows(self, code: str) -> bool:
        """Whether `code` is a standard one or one of the bundle's own."""
        return code in self.own_reasons or code in ReasonCode.__members__

    def message(self, code: str) -> str:
        """The sentence for a standard code or one of the bundle's own."""
        own = self.own_reasons.get(code)
        return own.message if own else ReasonCode(code).message

    def status(self, code: str) -> Status | None:
        """The status for a standard code or one of the bundle's own."""
        own = self.own_reasons.get(code)
        return own.status if own else ReasonCode(code).status
