"""The path of a call: the one list of stages, and the loop that takes a call along it.

Stages answer denials as values. The loop turns faults into refusals, writes the record on every path, and keeps
executions apart from whoever waits for them.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

import orjson

from gateway.domain.answers import Answer, refused, repeated, unsettled
from gateway.domain.call import Admitted, Authorized, Executed, Informed, KnownCall, Normalized, Proposed, Replay, Settled
from gateway.domain.canonical import integral_floats_as_integers
from gateway.domain.decision import Again, GatewayFault, Overloaded, Refusal
from gateway.domain.drafts import approval_document, decision_draft, replay_draft
from gateway.domain.in_force import InForce
from gateway.domain.outcome import CallState, Delivery, Phase
from gateway.domain.ports import Executor, Ledger, PolicyEngine
from gateway.domain.principal import Caller
from gateway.domain.reasons import Effect, ReasonCode
from gateway.domain.trail import Passage
from gateway.stages.admit import Admit
from gateway.stages.authenticate import Authenticate, FindKey, Key
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
from gateway.turns import Turn, Turns

JOIN_S = 5.0
"""How long a repeated call waits for the one that is already running."""
JOIN_POLL_S = (0.05, 0.15)
"""Between two looks at a running call, seconds; spread so that gateways do not look in step."""
MAX_ROUND = 64
"""Calls of one round that may run. A model's own turn may hold more; the rest is told to come later."""
MAX_REDECISIONS = 5
"""How often a call is decided anew because its facts changed before it was admitted."""
SETTLE_PATIENCE_S = 3.0
"""How long an answer waits for a settlement beyond the tool's own timeout; afterwards the outcome is unknown to it."""


Watch = Callable[[int, Admitted | Answer], None]
"""Hears, by its position in the round, of a call that was decided or has ended. Must not raise or block."""

_STOPPED = (Refusal, Replay)
"""What ends a walk before admission."""


def boot_time() -> float:
    """Seconds on a clock that nobody can set and that runs on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


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
    find_key: FindKey,
    ledger: Ledger,
    engine: PolicyEngine,
    executor: Executor,
    new_id: Callable[[], UUID],
    report: Callable[[Exception], None],
    boot_time: Callable[[], float] = boot_time,
) -> Path:
    """The one list of what happens to a call, in order."""
    return Path(
        authenticate=Authenticate(keys, find_key),
        deciding=(
            Recall(ledger),
            Resolve(),
            Validate(),
            Authorize(),
            ReadFacts(ledger),
            Decide(engine, ledger),
            Admit(ledger, executor, boot_time),
        ),
        acting=(
            Execute(report, boot_time),
            Normalize(),
            Settle(ledger, new_id, report),
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


CatchUp = Callable[[str], Awaitable[InForce | None]]
"""What is in force for a tenant by the ledger; None where that cannot run here."""


class Enforcer:
    """Takes calls along the path."""

    def __init__(
        self,
        path: Path,
        *,
        ledger: Ledger,
        engine: PolicyEngine,
        tasks: TaskSet,
        new_id: Callable[[], UUID],
        report: Callable[[Exception], None],
        catch_up: CatchUp | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._path = path
        self._places = {stage.name: place for place, stage in enumerate(path.deciding)}
        self._ledger = ledger
        self._engine = engine
        self._tasks = tasks
        self._new_id = new_id
        self._report = report
        self._catch_up = catch_up or _know_nothing_newer
        self._timer = timer
        self._turns = Turns()
        self._joins: dict[tuple[str, UUID], asyncio.Task[KnownCall]] = {}

    async def authenticate(self, authorization: str | None) -> Caller | None:
        """The first stage, once a request. Raises LedgerUnavailable."""
        return await self._path.authenticate(authorization)

    async def govern(self, call: Proposed) -> Answer:
        """One call from proposal to answer. Everything is recorded; LEDGER_UNAVAILABLE alone has no record."""
        found = await self._decide(call)
        return await self._finish(found) if isinstance(found, Admitted) else found

    async def govern_round(self, calls: Sequence[Proposed], *, watch: Watch | None = None) -> list[Answer]:
        """All calls of a turn: decided and admitted in order, executed in parallel; N in, N out, same order.

        `watch` hears of each call when it is decided (admitted, or answered at once), and of an admitted one when it has
        ended. A call that repeats an earlier one of the round is not told of.
        """
        twins, conflicting = _group_by_model_id(calls)
        pending: list[Answer | asyncio.Task[Answer]] = []
        is_away = False
        for index, call in enumerate(calls):
            if index in twins:
                pending.append(pending[twins[index]])
            elif is_away:
                pending.append(_without_ledger(call, "recall"))
            elif index in conflicting:
                pending.append(await self._refuse(call, Refusal(reason_code=ReasonCode.CALL_ID_REUSED), "recall"))
            elif index >= MAX_ROUND:
                pending.append(await self._refuse(call, Refusal(reason_code=ReasonCode.CONCURRENCY_LIMITED), "recall"))
            else:
                found = await self._decide(call)
                if watch is not None:
                    watch(index, found)
                pending.append(self._tasks.start(self._finish_watched(index, found, watch)) if isinstance(found, Admitted) else found)
                # A database that hangs would make the rest wait one after the other, for nothing.
                is_away = not isinstance(found, Admitted) and found["decision_id"] is None
        return [await entry if isinstance(entry, asyncio.Task) else entry for entry in pending]

    async def evaluate(self, call: Proposed) -> Evaluation:
        """The same stages up to a read-only admission check; writes nothing. Raises GatewayFault."""
        found, stage, value = await self._walk(call)
        refusal: Refusal | None = None
        if isinstance(found, Replay):
            decision = repeated(value, found.known, is_permitted=found.is_permitted)["decision"]
            effect, code, policy = Effect.ALLOW, decision["reason_code"], decision["policy"]
        elif isinstance(found, Refusal):
            refusal = found
            effect, code, policy = found.effect, found.reason_code, found.decision.policy if found.decision else None
        else:
            effect, code, policy = Effect.ALLOW, found.decision.reason_code, found.decision.policy
            stage = "decide"
        return Evaluation(
            effect=effect,
            reason_code=code,
            stage=stage,
            policy=policy,
            is_replay=isinstance(found, Replay),
            refusal=refusal,
            passages=call.trail.passages,
        )

    async def _decide(self, call: Proposed) -> Admitted | Answer:
        found, stage, value = await self._walk(call)
        if isinstance(found, Refusal):
            return await self._refuse(value, found, stage)
        if isinstance(found, Replay):
            return await self._repeat(value, found)
        return found

    async def _walk(self, call: Proposed) -> tuple[Admitted | Refusal | Replay, str, Any]:
        """Along the deciding stages to where the call is admitted or stops: what came of it, at which stage, from what."""
        stages = self._path.deciding
        inputs: list[Any] = [call]
        redecisions = 0
        async with self._turns.open() as turn:
            while True:
                stage, value = stages[len(inputs) - 1], inputs[-1]
                if stage.name == "facts" and not redecisions and (late := await self._take_turn(turn, value)):
                    return late, stage.name, value
                found = await self._pass(stage, value)
                if isinstance(found, Again):
                    redecisions += 1
                    if redecisions > MAX_REDECISIONS:
                        return Refusal(reason_code=ReasonCode.FACTS_CHANGED), stage.name, value
                    if found.stage == "resolve":
                        if (renewed := await self._renew(inputs[0])) is None:
                            return Refusal(reason_code=ReasonCode.POLICY_STALE, detail="another revision is in force"), stage.name, value
                        inputs = [renewed]
                    else:
                        del inputs[self._places[found.stage] + 1 :]
                elif isinstance(found, _STOPPED) or len(inputs) == len(stages):
                    return found, stage.name, value
                else:
                    inputs.append(found)

    async def _renew(self, call: Proposed) -> Proposed | None:
        """The call under what is in force by now; None where this gateway has nothing newer."""
        try:
            in_force = await self._catch_up(call.caller.tenant)
        except GatewayFault as fault:
            self._report(fault)
            return None
        return call.under(in_force) if in_force is not None and in_force.epoch != call.epoch else None

    async def _take_turn(self, turn: Turn, call: Authorized) -> Refusal | None:
        """Until the walk ends, no other call here changes the facts of this one."""
        if call.tool.declaration.facts == "none" or call.is_dry_run:
            return None
        tenant, principal = call.caller.tenant, call.principal
        keys = [("run", tenant, principal.agent, call.run_id), ("tool", tenant, principal.subject, call.tool.name)]
        try:
            await turn.take(keys)
        except Overloaded as fault:
            return Refusal(reason_code=fault.reason_code, detail=fault.detail)
        return None

    async def _pass(self, stage: Stage, value: Any) -> Any:
        began = self._timer()
        try:
            found = await stage(value)
        except GatewayFault as fault:
            self._report(fault)
            found = Refusal(reason_code=fault.reason_code, detail=fault.detail)
        except Exception as error:  # noqa: BLE001 - fail closed: one call's defect is a refusal, and its neighbours go on
            self._report(error)
            found = Refusal(reason_code=ReasonCode.OVERLOADED, detail=f"internal error: {type(error).__name__}")
        value.trail.add(stage.name, _came_to(found), self._timer() - began)
        return found

    async def _refuse(self, call: Proposed, refusal: Refusal, stage: str) -> Answer:
        draft = decision_draft(
            call, effect=refusal.effect, reason_code=refusal.reason_code, stage=stage, refusal=refusal, engine=self._engine.name
        )
        try:
            approval = await self._ledger.refuse(call, refusal, draft, _question(call, refusal))
        except Exception as error:  # noqa: BLE001 - without a record there is only one answer, and the neighbours get theirs
            self._report(error)
            return _without_ledger(call, stage)
        return refused(call, refusal, stage, approval)

    async def _repeat(self, call: Proposed, replay: Replay) -> Answer:
        try:
            known = await self._join(call.caller.tenant, replay.known)
            answer = repeated(call, known, is_permitted=replay.is_permitted)
            result = answer["result"]
            draft = replay_draft(call, known, call.decision_id, result["status"], result["reason_code"])
            await self._ledger.note_replay(call, known, draft)
        except Exception as error:  # noqa: BLE001 - as above
            self._report(error)
            return _without_ledger(call, "recall")
        return answer

    async def _join(self, tenant: str, known: KnownCall) -> KnownCall:
        """A known call once it has ended or was handed out, or as it stands after a while. All who wait for it here share one look."""
        if known.state is CallState.PENDING_CLIENT:
            state, result = await self._ledger.look_again(tenant, known.decision_id)
            return replace(known, state=state, result=result)
        if known.state is not CallState.RUNNING:
            return known
        place = (tenant, known.decision_id)
        if (join := self._joins.get(place)) is None:
            join = self._joins[place] = self._tasks.start(self._wait_for(tenant, known))
            join.add_done_callback(lambda _: self._joins.pop(place))
        seen = await join
        return replace(known, state=seen.state, result=seen.result)

    async def _wait_for(self, tenant: str, known: KnownCall) -> KnownCall:
        deadline = self._timer() + JOIN_S
        while known.state is CallState.RUNNING and self._timer() < deadline:
            await asyncio.sleep(random.uniform(*JOIN_POLL_S))  # noqa: S311 - a pause, not a secret
            state, result = await self._ledger.look_again(tenant, known.decision_id)
            known = replace(known, state=state, result=result)
        return known

    async def _finish_watched(self, index: int, call: Admitted, watch: Watch | None) -> Answer:
        answer = await self._finish(call)
        if watch is not None:
            watch(index, answer)
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
        if settled.delivered.late is not None:
            self._tasks.start(self._hear_late_answer(settled, settled.delivered.late))
        return settled.answer

    async def _hear_late_answer(self, call: Settled, late: Awaitable[Delivery]) -> None:
        """The tool's answer after its time: it ends the doubt, unless a resolver has begun."""
        delivered = await late
        if delivered.phase is Phase.LOST:
            return
        known = {name: found for name, found in vars(call).items() if name not in {"outcome", "answer", "delivered"}}
        value: Any = Executed(**known, delivered=delivered)
        for stage in self._path.acting[1:]:
            value = await stage(value)


async def _know_nothing_newer(_: str) -> InForce | None:
    return None


def _came_to(found: Any) -> str:
    match found:
        case Proposed():
            return "passed"
        case Refusal():
            return str(found.reason_code)
        case Replay():
            return "replayed"
        case Again():
            return "again"
        case _:
            raise TypeError(f"a stage answered {type(found).__name__}")


def _reached(value: Any) -> str:
    return value.outcome.state.value if isinstance(value, Normalized) else "passed"


def _question(call: Proposed, refusal: Refusal) -> bytes | None:
    """What a person is to be shown, where one must be asked and was not yet."""
    if refusal.effect is not Effect.CONFIRM or refusal.approval is not None or not isinstance(call, Informed):
        return None
    policy = refusal.decision.policy if refusal.decision else None
    return orjson.dumps(approval_document(call, refusal.reason_code, policy))


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
        return orjson.dumps([call.call.name, args], option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers and texts that no arguments may hold; each call is refused for itself
        return repr([call.call.name, args]).encode("utf-8", "surrogatepass")
