"""Invariants about what people agreed to."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.faults.evidence import Record
from tests.faults.run_index import RunIndex


def check_agreed_once(run: RunIndex) -> Iterator[str]:
    """A1: one agreement has at most one effect, and what needs one has none without it."""
    effects: dict[str, list[str]] = defaultdict(list)
    for call_id, applied in run.applied.items():
        approval_id = _approval_of(run.records.get(call_id))
        if approval_id is not None:
            effects[approval_id] += [call_id for _ in applied]
        elif run.tool(applied[0].tool).needs_person:
            yield f"call {call_id} ({applied[0].tool}) had an effect and nobody agreed"
    for approval_id, calls in effects.items():
        if len(calls) > 1:
            yield f"{len(calls)} effects of the one agreement {approval_id}: {', '.join(sorted(set(calls)))}"


def check_agreed_call(run: RunIndex) -> Iterator[str]:
    """A2: a call that a person agreed to is the one that the person saw: same tool, subject and arguments."""
    for call_id in run.applied:
        record = run.records.get(call_id)
        asked = run.records.get(_approval_of(record) or "")
        if record is not None and asked is not None and _what(record) != _what(asked):
            yield f"call {call_id} is not the one that {asked.id} asked about"


def check_grants_follow_calls(run: RunIndex) -> Iterator[str]:
    """A3: a grant is its call's own while that may have had an effect, and free again once it is proven that it had none."""
    for grant in run.dump.grants:
        call = run.calls.get(grant.consumed_by or "")
        if grant.state == "consumed" and (call is None or call.state == "open"):
            yield f"agreement {grant.id} stays used by {grant.consumed_by}, which had no effect"
        used_by = [each.id for each in run.calls.values() if each.state != "open" and _approval_of(run.records.get(each.id)) == grant.id]
        if grant.state == "granted" and used_by:
            yield f"agreement {grant.id} is free and {', '.join(used_by)} used it"


def _approval_of(record: Record | None) -> str | None:
    return record.document.get("approval_id") if record is not None and record.document.get("effect") == "allow" else None


def _what(record: Record) -> tuple[object, ...]:
    return tuple(record.document.get(name) for name in ("agent", "subject", "tool", "arguments_digest"))


PEOPLE_RULES: dict[str, Callable[[RunIndex], Iterator[str]]] = {
    "A1": check_agreed_once,
    "A2": check_agreed_call,
    "A3": check_grants_follow_calls,
}
