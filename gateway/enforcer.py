"""The path of a call: the one list of stages, and the loop that takes a call along it.

Stages answer denials as values. The loop turns faults into refusals, writes the record on every path, and keeps
executions apart from whoever waits for them.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import orjson

from gateway.domain.answers import Answer, refused, repeated, unsettled
from gateway.domain.call import Admitted, Normalized, Proposed, Replay, Settled
from gateway.domain.canonical import canonical_json, integral_floats_as_integers
from gateway.domain.decision import GatewayFault, LedgerUnavailable, Refusal
from gateway.domain.drafts import decision_draft, redacted_arguments, replay_draft
from gateway.domain.ports import Executor, Ledger, PolicyEngine
from gateway.domain.principal import Caller
from gateway.domain.reasons import Effect, ReasonCode
from gateway.domain.trail import Passage
from gateway.stages.admit import Admit
from gateway.stages.authenticate import Authenticate, Key
from gateway.stages.authorize import Authorize
from gateway.stages.decide import Decide
from gateway.stages.execute import Execute
from gateway.stages.facts import ReadFacts
from gateway.stages.normalize import Normalize
from gateway.stages.recall import Recall
from gateway.stages.resolve import Resolve
from gateway.stages.settle import Settle
from gateway.stages.validate import Validate
from gateway.tasks import TaskSet

SETTLE_PATIENCE_S = 3.0
"""How long an answer waits for a settlement beyond the tool's own timeout; afterwards the outcome is unknown to it."""


class Stage(Protocol):
    """One step of the path. The loop knows only this much of it; each stage's own types say the rest."""

    name: str

    async def __call__(self, call: Any, /) -> Any:
        """The next value, a Refusal, or a Replay."""
        ...


@dataclass(frozen=True, kw_only=True)
class Path:
    """The stages in DESIGN's order, in three stretches: once a request, up to the commit, after the commit."""

    authenticate: Authenticate
    deciding: tuple[Stage, ...]
    acting: tuple[Stage, ...]


def build_path(
    *,
    keys: Iterable[Key],
    ledger: Ledger,
    engine: PolicyEngine,
    executor: Executor,
    new_id: Callable[[], UUID],
    report: Callable[[Exception], None],
) -> Path:
    """The one list of what happens to a call, in order."""
    return Path(
        authenticate=Authenticate(keys),
        deciding=(
            Recall(ledger),
            Resolve(),
            Validate(),
            Authorize(),
            ReadFacts(ledger),
            Decide(engine),
            Admit(ledger, executor),
        ),
        acting=(
            Execute(report),
            Normalize(),
            Settle(ledger, new_id),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a dry run found: what would be answered, by which stage, and the way there. Nothing was written."""

    effect: Effect
    reason_code: str
    stage: str
    policy: str | None
    is_replay: bool
    refusal: Refusal | None
    passages: Sequence[Passage]


class Enforcer:
    """Takes calls along the path."""

    def __init__(
        self,
        path: Path,
        *,
        ledger: Ledger,
        engine_name: str,
        tasks: TaskSet,
        new_id: Callable[[], UUID],
        report: Callable[[Exception], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path = path
        self._ledger = ledger
        self._engine_name = engine_name
        self._tasks = tasks
        self._new_id = new_id
        self._report = report
        self._timer = timer

    def authenticate(self, authorization: str | None) -> Caller | None:
        """The first stage, once a request."""
        return self._path.authenticate(authorization)

    async def govern(self, call: Proposed) -> Answer:
        """One call from proposal to answer. Everything is recorded; LEDGER_UNAVAILABLE alone has no record."""
        found = await self._decide(call)
        return await self._finish(found) if isinstance(found, Admitted) else found

    async def govern_round(self, calls: Sequence[Proposed]) -> list[Answer]:
        """All calls of a turn: decided and admitted in order, executed in parallel; N in, N out, same order."""
        twins, conflicting = _group_by_model_id(calls)
        pending: list[Answer | asyncio.Task[Answer]] = []
        for index, call in enumerate(calls):
            if index in twins:
                pending.append(pending[twins[index]])
            elif index in conflicting:
                pending.append(await self._refuse(call, Refusal(reason_code=ReasonCode.CALL_ID_REUSED), "recall"))
            else:
                found = await self._decide(call)
                pending.append(self._tasks.start(self._finish(found)) if isinstance(found, Admitted) else found)
        return [await entry if isinstance(entry, asyncio.Task) else entry for entry in pending]

    async def evaluate(self, call: Proposed) -> Evaluation:
        """The same stages up to a read-only admission check; writes nothing. Raises GatewayFault."""
        value: Any = call
        for stage in self._path.deciding:
            found = await self._pass(stage, value)
            if isinstance(found, Refusal):
                decision = found.decision
                return Evaluation(
                    effect=found.effect,
                    reason_code=found.reason_code,
                    stage=stage.name,
                    policy=decision.policy if decision else None,
                    is_replay=False,
                    refusal=found,
                    passages=call.trail.passages,
                )
            if isinstance(found, Replay):
                answer = repeated(value, found.known, is_permitted=found.is_permitted)
                return Evaluation(
                    effect=Effect.ALLOW,
                    reason_code=answer["decision"]["reason_code"],
                    stage=stage.name,
                    policy=answer["decision"]["policy"],
                    is_replay=True,
                    refusal=None,
                    passages=call.trail.passages,
                )
            value = found
        admitted: Admitted = value
        return Evaluation(
            effect=Effect.ALLOW,
            reason_code=admitted.decision.reason_code,
            stage="decide",
            policy=admitted.decision.policy,
            is_replay=False,
            refusal=None,
            passages=call.trail.passages,
        )

    async def _decide(self, call: Proposed) -> Admitted | Answer:
        value: Any = call
        for stage in self._path.deciding:
            found = await self._pass(stage, value)
            if isinstance(found, Refusal):
                return await self._refuse(value, found, stage.name)
            if isinstance(found, Replay):
                return await self._repeat(value, found)
            value = found
        return value

    async def _pass(self, stage: Stage, value: Any) -> Any:
        began = self._timer()
        try:
            found = await stage(value)
        except GatewayFault as fault:
            found = Refusal(reason_code=fault.reason_code, detail=fault.detail)
        except Exception as error:  # noqa: BLE001 - fail closed: one call's defect is a refusal, and its neighbours go on
            self._report(error)
            found = Refusal(reason_code=ReasonCode.OVERLOADED, detail=f"internal error: {type(error).__name__}")
        outcome = found.reason_code if isinstance(found, Refusal) else "replayed" if isinstance(found, Replay) else "passed"
        value.trail.add(stage.name, str(outcome), self._timer() - began)
        return found

    async def _refuse(self, call: Proposed, refusal: Refusal, stage: str) -> Answer:
        draft = decision_draft(
            call, effect=refusal.effect, reason_code=refusal.reason_code, stage=stage, refusal=refusal, engine=self._engine_name
        )
        try:
            approval = await self._ledger.refuse(call, refusal, draft, orjson.dumps(redacted_arguments(call)))
        except LedgerUnavailable:
            return _without_ledger(call, stage)
        return refused(call, refusal, stage, approval)

    async def _repeat(self, call: Proposed, replay: Replay) -> Answer:
        answer = repeated(call, replay.known, is_permitted=replay.is_permitted)
        result = answer["result"]
        draft = replay_draft(call, replay.known, call.decision_id, result["status"], result["reason_code"])
        try:
            await self._ledger.note_replay(draft, replay.known.decision_id)
        except LedgerUnavailable:
            return _without_ledger(call, "recall")
        return answer

    async def _finish(self, call: Admitted) -> Answer:
        # The execution goes on whatever becomes of this wait: a settlement may outlast the database's absence.
        execution = self._tasks.start(self._act(call))
        await asyncio.wait({execution}, timeout=call.tool.declaration.timeout + SETTLE_PATIENCE_S)
        if not execution.done():
            return unsettled(call)
        if (error := execution.exception()) is not None:
            self._report(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
            return unsettled(call)
        return execution.result()

    async def _act(self, call: Admitted) -> Answer:
        value: Any = call
        for stage in self._path.acting:
            began = self._timer()
            value = await stage(value)
            value.trail.add(stage.name, _reached(value), self._timer() - began)
        settled: Settled = value
        return settled.answer


def _reached(value: Any) -> str:
    return value.outcome.state.value if isinstance(value, Normalized) else "passed"


def _without_ledger(call: Proposed, stage: str) -> Answer:
    return refused(call, Refusal(reason_code=ReasonCode.LEDGER_UNAVAILABLE), stage, None, is_recorded=False)


def _group_by_model_id(calls: Sequence[Proposed]) -> tuple[dict[int, int], set[int]]:
    """Places whose call repeats an earlier one (place -> first place), and places whose id names different calls."""
    places: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        if call.call.id is not None:
            places.setdefault(call.call.id, []).append(index)
    twins: dict[int, int] = {}
    conflicting: set[int] = set()
    for same_id in places.values():
        if len({_text(calls[index]) for index in same_id}) > 1:
            conflicting.update(same_id)
        else:
            twins.update(dict.fromkeys(same_id[1:], same_id[0]))
    return twins, conflicting


def _text(call: Proposed) -> bytes:
    args: Any = {} if call.call.args is None else integral_floats_as_integers(call.call.args)
    try:
        return canonical_json([call.call.name, args])
    except ValueError:
        return repr([call.call.name, args]).encode("utf-8", "surrogatepass")
