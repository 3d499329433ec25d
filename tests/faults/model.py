"""A small pure model of what an agent may be told: the state of each call that it made, and the answers that each allows."""

from dataclasses import dataclass, field
from typing import Literal

from tests.faults.load import Wish

State = Literal["open", "doubt", "done", "failed"]

ANY_TIME = frozenset({"temporary_error"})
"""The gateway may always put a call off (breaker, slots, ledger); a call that has not ended stays as it was."""
FIRST: dict[str, frozenset[str]] = {
    # On a busy machine any answer may come after its time.
    "ok": frozenset({"ok", "outcome_unknown"}),
    "slow": frozenset({"ok", "outcome_unknown"}),
    "garbage": frozenset({"ok", "outcome_unknown"}),
    "huge": frozenset({"ok", "outcome_unknown"}),
    "refuse": frozenset({"failed"}),
    "busy": frozenset({"temporary_error"}),
    "reset-before-apply": frozenset({"outcome_unknown"}),
    "apply-then-reset": frozenset({"outcome_unknown"}),
    "apply-then-500": frozenset({"outcome_unknown"}),
}
"""What a write may be told on its first delivery, by what the tool does."""
STATE_AFTER: dict[str, State] = {
    "ok": "done",
    "failed": "failed",
    "outcome_unknown": "doubt",
    "in_progress": "doubt",
    "temporary_error": "open",
}
RESOLVABLE = frozenset({"write_keyed", "write_probe"})


@dataclass
class Known:
    """One logical call, as the agent knows it."""

    wish: Wish
    mode: str
    state: State = "open"
    result: str | None = None
    """The terminal result, as canonical text; whatever is told later must be the same."""
    decisions: list[str] = field(default_factory=list[str])


def needs_a_person(known: Known) -> bool:
    """Whether only a person can end this doubt."""
    return known.state == "doubt" and known.decisions != [] and known.wish.tool not in RESOLVABLE


def holds_its_action(known: Known) -> bool:
    """Whether the same action under another key is answered by this call."""
    return known.state == "done" and known.result is not None and known.wish.tool in RESOLVABLE


def statuses_for(known: Known) -> frozenset[str]:
    """What asking for a call (again) may be told."""
    if known.state == "done":
        return frozenset({"ok"})
    if known.state == "failed":
        return frozenset({"failed"})
    first = FIRST[known.mode] | ANY_TIME
    if known.state == "open":
        return first
    unresolved = frozenset({"outcome_unknown", "in_progress"})
    if known.wish.tool not in RESOLVABLE:
        return unresolved
    # Resolved meanwhile: it was done, it was refused on the second delivery, or it is open again and was sent anew.
    return unresolved | {"ok", "failed"} | first


def learn(known: Known, status: str, result: str, decision_id: str) -> str | None:
    """Take an answer in; what is wrong with it, or None."""
    if status not in statuses_for(known):
        return f"{known.wish.tool} ({known.mode}, {known.state}) was told {status}; allowed: {', '.join(sorted(statuses_for(known)))}"
    if known.result is not None and result != known.result:
        return f"{known.wish.tool} was told {result} after {known.result}"
    known.state = STATE_AFTER[status]
    known.decisions.append(decision_id)
    if known.state in {"done", "failed"}:
        known.result = result
    return None
