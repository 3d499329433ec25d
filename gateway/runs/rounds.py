"""One round of a run: all calls of a turn governed together, and each that waits looked after until it no longer does.

A call waits while a person has not answered, while its client has not reported, while the same call runs elsewhere, and
for a while where nobody knows yet what came of it. Each call has one transport key, made of run, turn and position, however
often and by whichever gateway it is repeated: the ledger then answers, and nothing runs twice.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from gateway.domain.answers import Answer, as_it_stands
from gateway.domain.authority import may_see
from gateway.domain.call import Admitted, Proposed, ProposedCall
from gateway.domain.identity import transport_key
from gateway.domain.in_force import InForce
from gateway.domain.outcome import CallState
from gateway.domain.principal import Caller, Role
from gateway.domain.runs import Event, HeldRun, StoredEvent, Waits
from gateway.runs.journal import HandOver, Journal
from gateway.runs.parts import POLL_S, Parts
from gateway.runs.turns import Calls

TEMPORARY_REPEATS = 2
"""How often a call is repeated that a tool or a limit turned away for the moment."""
LONGEST_PAUSE_S = 5.0
"""What asks for a longer pause is told to the model instead."""
DOUBT_PATIENCE_S = 30.0
"""How long a round waits for the resolver of a call whose outcome is unknown."""
APPROVAL_REPEATS = 8
"""How often a call is repeated with an approval, before its answer stands as it is."""
AWAY_PAUSE_S = 1.0
MAX_SHOWN = 128
"""Characters of the model's own name or id for a call in events."""


class Round:
    """The round of one turn."""

    def __init__(self, parts: Parts, journal: Journal, run: HeldRun, *, turn: int, calls: Calls, told: Sequence[StoredEvent]) -> None:
        self._parts = parts
        self._journal = journal
        self._run = run
        self._key = journal.hold.key
        self._turn = turn
        self._calls = calls
        self._answers: dict[int, Answer] = {}
        self._approvals: dict[int, str] = {}
        self._repeats: dict[int, int] = {}
        self._due: dict[int, float] = {}
        """When a call is repeated or given up waiting for (loop time)."""
        self._given_up: set[int] = set()
        self._told = {mark for event in told if event.data.get("turn") == turn for mark in _marks(event.type, event.data)}

    async def run(self) -> list[Answer]:
        """The answers, one a call, once none of them waits. Raises HoldLost, HandOver."""
        places = range(len(self._calls.calls))
        await self._find_approvals()
        await self._govern(places)
        while waiting := [place for place in places if self._waits(place)]:
            await self._pause()
            await self._look_after(waiting)
        for place in places:
            self._note(place, self._answers[place])
        return [self._answers[place] for place in places]

    async def _find_approvals(self) -> None:
        """Approvals that an earlier holder of the run asked for."""
        digests = {transport_key(self._transport_key(place)): place for place in range(len(self._calls.calls))}
        kept = await self._journal.patiently(lambda: self._parts.store.kept_approvals(self._key, list(digests)))
        self._approvals = {digests[digest]: approval for digest, approval in kept.items()}

    async def _govern(self, places: Iterable[int]) -> None:
        """Govern calls together, first time or again."""
        chosen = list(places)
        in_force = await self._in_force()
        round_id = self._parts.new_id()
        calls = [self._propose(in_force, place, (round_id, place)) for place in chosen]
        # Whoever lost the run meanwhile does not begin any more. The ledger would see to it that nothing runs twice.
        await self._journal.patiently(lambda: self._parts.store.renew(self._journal.hold, lease_s=self._parts.lease_s))
        work = self._parts.enforcer.govern_round(calls, watch=lambda index, found: self._hear(chosen[index], found))
        # Shielded: a run that ends while a call is under way does not stop the call.
        answers = await asyncio.shield(self._parts.tasks.start(work))
        now = asyncio.get_running_loop().time()
        for place, answer in zip(chosen, answers, strict=True):
            self._answers[place] = answer
            self._repeats[place] = self._repeats.get(place, -1) + 1
            self._due[place] = now + self._pause_after(answer)

    async def _in_force(self) -> InForce:
        while (in_force := self._parts.in_force(self._key.tenant)) is None:
            await self._pause()
        return in_force

    def _propose(self, in_force: InForce, place: int, round_: tuple[UUID, int]) -> Proposed:
        call, run = self._calls.calls[place], self._run
        return Proposed(
            caller=Caller(tenant=self._key.tenant, name=self._key.agent, roles=frozenset({Role.AGENT})),
            bundle=in_force.bundle,
            decision_id=self._parts.new_id(),
            now=self._parts.now(),
            workflow_name=run.workflow,
            run_id=self._key.run_id,
            on_behalf_of=run.subject,
            context=run.context,
            call=ProposedCall(
                id=call.wire_id,
                name=call.name,
                args=call.args,
                defects=self._calls.defects[place],
                idempotency_key=self._transport_key(place),
                approval_id=self._approvals.get(place),
            ),
            round=round_,
        ).under(in_force)

    def _transport_key(self, place: int) -> str:
        # With blanks, which no key that comes over HTTP has this many of.
        return f"run {self._key.run_id} {self._turn} {place}"

    def _waits(self, place: int) -> bool:
        return self._still_waits(place, self._answers[place])

    def _still_waits(self, place: int, answer: Answer) -> bool:
        result, repeats = answer["result"], self._repeats.get(place, 0)
        if place in self._given_up:
            return False
        if answer["decision_id"] is None:
            return True  # the ledger was away: nothing happened, and nothing can be told from that
        match result["status"]:
            case "confirmation_required":
                return repeats < APPROVAL_REPEATS
            case "temporary_error":
                return repeats < TEMPORARY_REPEATS and result["retry_after_ms"] <= LONGEST_PAUSE_S * 1_000
            case "pending_client" | "in_progress" | "outcome_unknown":
                return True
            case _:
                return False

    async def _look_after(self, waiting: Sequence[int]) -> None:
        """One look at everything that waits; repeats and reads anew what no longer does."""
        answers = {place: self._answers[place] for place in waiting}
        approvals = [answer["result"]["approval_id"] for answer in answers.values() if "approval_id" in answer["result"]]
        decisions = [UUID(answer["decision_id"]) for answer in answers.values() if answer["decision_id"]]
        waits = await self._journal.patiently(lambda: self._parts.store.read_waits(self._key.tenant, approvals, decisions))
        now = asyncio.get_running_loop().time()
        repeated: list[int] = []
        for place, answer in answers.items():
            result = answer["result"]
            if answer["decision_id"] is not None and result["status"] in ("pending_client", "outcome_unknown"):
                await self._look_again(place, waits, is_late=now >= self._due[place])
            elif result["status"] == "confirmation_required":
                if result["approval_id"] not in waits.pending_approvals:
                    self._approvals[place] = result["approval_id"]
                    repeated.append(place)
            elif now >= self._due[place]:
                repeated.append(place)
        if repeated:
            await self._govern(repeated)

    async def _look_again(self, place: int, waits: Waits, *, is_late: bool) -> None:
        """Read the answer of an admitted call anew, where it stands elsewhere by now."""
        decision_id = UUID(self._answers[place]["decision_id"])
        state = waits.states.get(decision_id)
        if state is CallState.PENDING_CLIENT:
            return
        if state in (CallState.IN_DOUBT, CallState.RUNNING):
            # A doubt that only a person can end is told to the model as it is.
            if is_late or (state is CallState.IN_DOUBT and decision_id not in waits.resolvable):
                self._given_up.add(place)
            if self._answers[place]["result"]["status"] != "pending_client":
                return
        now = await self._journal.patiently(lambda: self._parts.ledger.get_call(self._key.tenant, self._key.agent, decision_id))
        if now is None:
            self._given_up.add(place)
            return
        in_force, record = await self._in_force(), now.record
        is_permitted = may_see(
            in_force.bundle, self._key.agent, record["workflow"], record["subject"], record["tool"], controls=in_force.controls
        )
        answer = as_it_stands(in_force.bundle, now, is_permitted=is_permitted)
        self._answers[place] = self._answers[place] | {"result": answer["result"]}
        self._due[place] = asyncio.get_running_loop().time() + self._pause_after(answer)
        self._note(place, self._answers[place])

    async def _pause(self) -> None:
        """A moment, or the end of this gateway. Raises HandOver."""
        try:
            async with asyncio.timeout(random.uniform(*POLL_S)):  # noqa: S311 - a pause, not a secret
                await self._parts.draining.wait()
        except TimeoutError:
            return
        raise HandOver

    @staticmethod
    def _pause_after(answer: Answer) -> float:
        if answer["decision_id"] is None:
            return AWAY_PAUSE_S
        if answer["result"]["status"] == "outcome_unknown":
            return DOUBT_PATIENCE_S
        return min(answer["result"].get("retry_after_ms", 0) / 1_000, LONGEST_PAUSE_S)

    def _hear(self, place: int, found: Admitted | Answer) -> None:
        if isinstance(found, Admitted):
            self._tell_decided(place, str(found.decision_id), "allow", str(found.decision.reason_code))
        else:
            self._note(place, found)

    def _note(self, place: int, answer: Answer) -> None:
        """Tell what is new about a call; each thing once, whichever gateway tells it."""
        result, decision = answer["result"], answer["decision"]
        is_open = self._still_waits(place, answer)
        approval_id = result.get("approval_id")
        if answer["decision_id"] is None or (is_open and result["status"] in ("in_progress", "outcome_unknown", "temporary_error")):
            return
        if approval_id is None or ("announced", place, approval_id) not in self._told:
            self._tell_decided(place, answer["decision_id"], decision["effect"], decision["reason_code"])
        if is_open and approval_id is not None:
            shown = {name: result[name] for name in ("approval_id", "expires_at", "summary", "reason_code")}
            self._tell("approval.required", ("announced", place, approval_id), place, shown)
        elif is_open and result["status"] == "pending_client":
            shown = {name: result[name] for name in ("execution_id", "expires_at", "kind", "args")}
            self._tell("client.required", ("announced", place, result["execution_id"]), place, shown)
        else:
            shown = {name: result[name] for name in ("status", "reason_code", "message")}
            self._tell("call.finished", ("finished", place, ""), place, shown | {"decision_id": answer["decision_id"]})

    def _tell_decided(self, place: int, decision_id: str, effect: str, reason_code: str) -> None:
        facts = {"decision_id": decision_id, "effect": effect, "reason_code": reason_code}
        self._tell("call.decided", ("decided", place, decision_id), place, facts)

    def _tell(self, type_: str, mark: tuple[str, int, str], place: int, facts: dict[str, Any]) -> None:
        if mark in self._told:
            return
        self._told.add(mark)
        self._journal.tell(Event(type=type_, data={"turn": self._turn, "position": place} | self._describe(place) | facts))

    def _describe(self, place: int) -> dict[str, Any]:
        """The call as people know it: the model's id and name, and the tool's own words where there is such a tool."""
        call = self._calls.calls[place]
        shown: dict[str, Any] = {"call": {"name": (call.name or "")[:MAX_SHOWN]}}
        if call.id is not None:
            shown["call"]["id"] = call.id[:MAX_SHOWN]
        in_force = self._parts.in_force(self._key.tenant)
        tool = in_force.bundle.tools.get(call.name) if in_force is not None and call.name else None
        if tool is not None:
            shown |= {"title": tool.declaration.title, "progress": tool.declaration.progress, "risk": tool.declaration.risk.value}
        return shown


def _marks(type_: str, data: Any) -> Iterable[tuple[str, int, str]]:
    """What a stored event already told."""
    place = data.get("position")
    match type_:
        case "call.decided":
            yield "decided", place, data["decision_id"]
        case "call.finished":
            yield "finished", place, ""
        case "approval.required":
            yield "announced", place, data["approval_id"]
        case "client.required":
            yield "announced", place, data["execution_id"]
        case _:
            pass
