"""Impact: what a candidate bundle would have decided on the calls that were recorded.

The recorded policy input is asked again, never rebuilt: what was not recorded, or was redacted, cannot be replayed and is
counted as such. The candidate runs in an engine of its own and decides nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from gateway.bundle import Report
from gateway.domain.catalogue import Bundle
from gateway.domain.decision import PolicyFault, Refusal
from gateway.domain.policy_answer import read_answer
from gateway.domain.ports import DecisionLog, LogQuery, PolicyEngine
from gateway.domain.reasons import Effect, ReasonCode
from gateway.domain.redaction import REDACTED
from gateway.domain.search import Pattern, Search

MAX_FLIPS = 1_000
"""Flipped decisions that are listed one by one; all are counted."""
PAGE = 200
"""Decisions that are asked at once."""
AT_ONCE = 4
"""Connections to the database that a replay takes at most: calls need the others."""
_REDACTED = orjson.dumps(REDACTED)
_ORDER = (Effect.DENY, Effect.SUPPRESS, Effect.CONFIRM, Effect.ALLOW)


class CandidateInvalid(Exception):
    """The candidate does not compile; `report` says why."""

    def __init__(self, report: Report) -> None:
        super().__init__("the candidate does not compile")
        self.report = report


@dataclass(frozen=True, kw_only=True)
class Said:
    """What policy says to a call."""

    effect: str
    reason_code: str


@dataclass(kw_only=True)
class Impact:
    """What was found so far."""

    revision: str
    failures: list[dict[str, Any]]
    """Tests and cases of the candidate that fail."""
    seen: int = 0
    replayed: int = 0
    unchanged: int = 0
    reason_only: int = 0
    """Same effect for another reason."""
    before_policy: int = 0
    """Refused before policy was asked; no policy could change that."""
    not_replayable: int = 0
    transitions: Counter[str] = field(default_factory=Counter[str])
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter[str]() for name in ("tool", "agent", "reason")})
    """``transition value`` -> count."""
    flips: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def document(self) -> dict[str, Any]:
        """As JSON values; ``deny->allow`` first."""

        def rank(transition: str) -> tuple[bool, int, str]:
            return transition != "deny->allow", -self.transitions[transition], transition

        counts = {
            name: [
                {"transition": key.split(" ", 1)[0], name: key.split(" ", 1)[1], "count": count}
                for key, count in sorted(found.items(), key=lambda each: (rank(each[0].split(" ", 1)[0]), -each[1], each[0]))
            ]
            for name, found in self.by.items()
        }
        return {
            "revision": self.revision,
            "failures": self.failures,
            "seen": self.seen,
            "replayed": self.replayed,
            "unchanged": self.unchanged,
            "reason_only": self.reason_only,
            "before_policy": self.before_policy,
            "not_replayable": self.not_replayable,
            "transitions": {transition: self.transitions[transition] for transition in sorted(self.transitions, key=rank)},
            "by": counts,
            "flips": sorted(self.flips, key=lambda flip: rank(flip["transition"])),
        }


class ImpactStudy:
    """Replays the decisions of a tenant against a candidate."""

    def __init__(
        self,
        log: DecisionLog,
        *,
        check_files: Callable[[Mapping[str, bytes]], Awaitable[Report]],
        new_engine: Callable[[], PolicyEngine],
    ) -> None:
        self._log = log
        self._check_files = check_files
        self._new_engine = new_engine

    async def candidate(self, files: Mapping[str, bytes]) -> tuple[Bundle, Impact]:
        """The candidate, if it compiles. Raises CandidateInvalid."""
        report = await self._check_files(files)
        if report.checked is None:
            raise CandidateInvalid(report)
        bundle = report.checked.bundle
        failures = [vars(finding) for finding in report.failures if finding.severity == "error"]
        return bundle, Impact(revision=bundle.revision, failures=failures)

    async def replay(
        self, tenant: str, bundle: Bundle, impact: Impact, *, after: datetime | None, high: int, limit: int
    ) -> AsyncGenerator[int]:
        """Replay the newest decisions below position `high`, into `impact`. Yields how many were seen. Raises PolicyFault, LedgerUnavailable."""
        search = Search(wanted={"kind": (Pattern(parts=("decision",)),)}, after=after)
        engine = self._new_engine()
        turn = asyncio.Semaphore(AT_ONCE)
        try:
            await engine.activate(bundle.policy)
            bound: int | None = high
            while bound is not None and impact.seen < limit:
                query = LogQuery(tenant=tenant, search=search, high=bound, limit=min(PAGE, limit - impact.seen))
                page = await self._log.find(query)
                records = [orjson.loads(record.body) for record in page.records]
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(self._ask(tenant, record, bundle, engine, turn)) for record in records]
                for record, task in zip(records, asked, strict=True):
                    _count(impact, record, task.result())
                bound = page.bound
                yield impact.seen
        finally:
            await engine.close()

    async def _ask(
        self, tenant: str, record: Mapping[str, Any], bundle: Bundle, engine: PolicyEngine, turn: asyncio.Semaphore
    ) -> tuple[Said, Said] | str:
        if record["stage"] not in ("decide", "admit", "execute", "settle") and record["policy"] is None:
            return "before_policy"
        async with turn:
            payloads = await self._log.reveal(tenant, UUID(record["decision_id"]))
        document = payloads.get("arguments", {}).get("policy_input")
        if document is None:
            return "not_replayable"
        body = orjson.dumps(document)
        if _REDACTED in body:  # A fact is missing; whatever came out would be a guess.
            return "not_replayable"
        return _said_then(record, document), await _say(engine, bundle, body)


async def _say(engine: PolicyEngine, bundle: Bundle, document: bytes) -> Said:
    try:
        answer = read_answer(await engine.decide(bundle.revision, document), bundle)
    except PolicyFault as fault:
        if fault.reason_code is ReasonCode.POLICY_ENGINE_UNAVAILABLE:
            raise  # The host's fault, which says nothing about the candidate.
        return Said(effect=Effect.DENY.value, reason_code=fault.reason_code.value)
    if isinstance(answer, Refusal):
        return Said(effect=Effect.DENY.value, reason_code=str(answer.reason_code))
    return Said(effect=answer.effect.value, reason_code=str(answer.reason_code))


def _said_then(record: Mapping[str, Any], document: Mapping[str, Any]) -> Said:
    """What policy said when it was recorded: budgets and people may have refused the call afterwards."""
    fired = record["rules"]
    for effect in _ORDER:
        of_effect = [rule for rule in fired if rule["effect"] == effect.value]
        if of_effect:
            first = min(of_effect, key=lambda rule: (rule["policy"], rule["reason_code"]))
            if effect is Effect.CONFIRM and _is_granted(document):
                return Said(effect=Effect.ALLOW.value, reason_code=ReasonCode.APPROVAL_GRANTED.value)
            return Said(effect=effect.value, reason_code=first["reason_code"])
    # No rule fired, or the answer could not be used.
    is_default = record["stage"] != "decide" or record["policy"] is not None
    return Said(effect=Effect.DENY.value, reason_code=ReasonCode.DEFAULT_DENY.value if is_default else record["reason_code"])


def _is_granted(document: Mapping[str, Any]) -> bool:
    approval: Mapping[str, Any] = document.get("approval") or {}
    return approval.get("valid") is True


def _count(impact: Impact, record: Mapping[str, Any], found: tuple[Said, Said] | str) -> None:
    impact.seen += 1
    if found == "before_policy":
        impact.before_policy += 1
        return
    if isinstance(found, str):
        impact.not_replayable += 1
        return
    then, now = found
    impact.replayed += 1
    if then == now:
        impact.unchanged += 1
        return
    if then.effect == now.effect:
        impact.reason_only += 1
        return
    transition = f"{then.effect}->{now.effect}"
    impact.transitions[transition] += 1
    for name, value in (("tool", record["tool"]), ("agent", record["agent"]), ("reason", f"{then.reason_code}->{now.reason_code}")):
        impact.by[name][f"{transition} {value}"] += 1
    if len(impact.flips) < MAX_FLIPS:
        kept = {name: record[name] for name in ("decision_id", "at", "agent", "subject", "workflow", "tool", "run_id")}
        impact.flips.append(kept | {"transition": transition, "then": vars(then), "now": vars(now)})
