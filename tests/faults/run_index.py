"""A run as the checker's rules look at it: what was left behind, sorted by call, key and record once."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tests.faults.dump import LIVE_STATES, state_of_record
from tests.faults.evidence import Call, Dump, Effect, History, Operation, Record, Setup, ToolFacts

ENDED_STATES = frozenset({"succeeded", "failed", "open"})
TERMINAL_STATUSES = frozenset({"ok", "no_match", "failed"})
EXECUTED_STATUSES = TERMINAL_STATUSES | {"outcome_unknown", "in_progress", "pending_client"}
NOTHING_HAPPENED_STATUSES = frozenset({"temporary_error", "blocked", "invalid_arguments", "suppressed", "confirmation_required"})


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A broken promise."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class RunIndex:
    """What a run left behind. `is_at_rest`: everything had the time to end, so nothing may be on its way any more."""

    history: History
    effects: list[Effect]
    dump: Dump
    setup: Setup
    is_at_rest: bool = True
    patience_s: float = 10.0
    """How long a call may stay `running` past its lease while the run is not at rest."""

    @cached_property
    def arrivals(self) -> dict[str, list[Effect]]:
        """What reached a tool, by call."""
        return _by_call(effect for effect in self.effects if effect.event == "arrival")

    @cached_property
    def applied(self) -> dict[str, list[Effect]]:
        """What had an effect, by call."""
        return _by_call(effect for effect in self.effects if effect.event == "applied")

    @cached_property
    def records(self) -> dict[str, Record]:
        """Records by id."""
        return {record.id: record for record in self.dump.records}

    @cached_property
    def calls(self) -> dict[str, Call]:
        """Admitted calls by decision."""
        return {call.id: call for call in self.dump.calls}

    @cached_property
    def endings(self) -> dict[str, list[tuple[str, Record]]]:
        """What was recorded about each call after its decision: the states it went through, oldest first."""
        found: dict[str, list[tuple[str, Record]]] = defaultdict(list)
        for record in self.dump.records:
            if record.about is not None and (state := state_of_record(record)) is not None:
                found[record.about].append((state, record))
        return found

    @cached_property
    def answered(self) -> list[Operation]:
        """Operations that got an answer with a decision."""
        return [operation for operation in self.history.operations if operation.type == "ok" and operation.decision_id]

    def tool(self, name: str) -> ToolFacts:
        """What the bundle says of a tool; of one that it does not know, the strictest."""
        return self.setup.tools.get(name, ToolFacts(replay="never", is_read=False, timeout_s=0.5))

    def repeats(self) -> dict[tuple[str, str], list[Operation]]:
        """Answered operations by agent and key."""
        found: dict[tuple[str, str], list[Operation]] = defaultdict(list)
        for operation in self.answered:
            if operation.key is not None:
                found[operation.agent, operation.key].append(operation)
        return found

    def is_running(self, call: Call) -> bool:
        """Whether a call is not at its end and may still be in somebody's hands."""
        return call.state in LIVE_STATES


def _by_call(effects: Iterable[Effect]) -> dict[str, list[Effect]]:
    found: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        found[effect.call_id].append(effect)
    return found
