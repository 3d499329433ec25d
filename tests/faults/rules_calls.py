"""Invariants about answers and about the states that calls go through."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.faults.dump import STATES_OF_STATUS, has_evidence, is_automatic
from tests.faults.evidence import Operation
from tests.faults.run_index import ENDED_STATES, EXECUTED_STATUSES, TERMINAL_STATUSES, RunIndex

LEASE_GRACE_S = 5.0
_DONE = frozenset({"ok", "no_match"})
"""A business key is free again after a failure, so that only these are final for it."""


def check_same_answer(run: RunIndex) -> Iterator[str]:
    """I4: one key and one input have one terminal result; another input under the key is never executed."""
    for (agent, key), operations in run.repeats().items():
        executed = {operation.payload for operation in operations if operation.status in EXECUTED_STATUSES}
        if len(executed) > 1:
            yield f"{len(executed)} different inputs were executed or answered under the key {key} of {agent}"
    for (identity, final), operations in _same_calls(run).items():
        results = {_result(operation) for operation in operations if operation.status in final} - {None}
        if len(results) > 1:
            yield f"{len(results)} different results for {identity}: {' / '.join(sorted(filter(None, results)))[:300]}"


def check_fences(run: RunIndex) -> Iterator[str]:
    """I6: what has ended is not changed again, and the call stands where its last record left it."""
    for call_id, endings in run.endings.items():
        ended_by: str | None = None
        for state, record in endings:
            if ended_by is not None:
                yield f"call {call_id} had ended ({ended_by}) and was changed to {state} by record {record.id}"
            if state in ENDED_STATES:
                ended_by = f"{state} by record {record.id}"
    for call in run.dump.calls:
        endings = run.endings.get(call.id)
        last = endings[-1][0] if endings else "running"
        is_same = call.state == last or (last == "running" and call.state == "pending_client")
        if not is_same:
            yield f"call {call.id} is {call.state}, and its last record says {last}"


def check_resolutions(run: RunIndex) -> Iterator[str]:
    """I7: a doubt ends only by a resolution that names its method and its evidence."""
    for call_id, endings in run.endings.items():
        for (before, _), (state, record) in pairwise(endings):
            if before == "in_doubt" and not has_evidence(record):
                yield f"call {call_id} left doubt for {state} by a {record.kind} record without method and evidence"


def check_answers_last(run: RunIndex) -> Iterator[str]:
    """I8: what was answered to the end stays so, in later answers and in the database."""
    for operation in run.answered:
        call = run.calls.get(operation.decision_id or "")
        wanted = STATES_OF_STATUS.get(operation.status or "")
        if wanted is not None and (call is None or call.state != wanted):
            yield f"call {operation.decision_id} was answered {operation.status} and is {call.state if call else 'not there'}"
    for (identity, final), operations in _same_calls(run).items():
        told = sorted((operation for operation in operations if operation.status in final), key=lambda each: each.ended or 0)
        if told:
            end = told[0].ended or 0
            later = [each for each in operations if each.began > end and each.status not in final and not _is_expired(each)]
            for operation in later:
                yield f"{identity} was answered {told[0].status}, and later {operation.status} ({_code(operation)})"


def check_leaving_changes_nothing(run: RunIndex) -> Iterator[str]:
    """I9: a client that leaves changes no outcome. Only where nothing else was done to the system."""
    if run.history.nemeses or not run.is_at_rest:
        return
    done = {effect.call_id for effect in run.effects if effect.event == "applied" and effect.mode.startswith(("ok", "slow"))}
    left = {operation.args["action"] for operation in run.history.operations if operation.why == "client left"}
    for call_id in sorted(done):
        call, applied = run.calls.get(call_id), run.applied.get(call_id)
        if call is not None and applied and applied[0].action in left and call.state != "succeeded":
            yield f"call {call_id} of a client that left was done and is {call.state}"


def check_leases(run: RunIndex) -> Iterator[str]:
    """D1: nothing runs past its lease for long."""
    for call in run.dump.calls:
        lease = call.lease_until or call.admitted_at + run.tool(call.tool).timeout_s + LEASE_GRACE_S
        if run.is_running(call) and (run.is_at_rest or run.dump.taken_at > lease + run.patience_s):
            yield f"call {call.id} ({call.tool}) still runs {run.dump.taken_at - lease:.1f} s past its lease"


def check_doubts(run: RunIndex) -> Iterator[str]:
    """D2: reads are never in doubt; doubts end as their class allows, and only a person ends those of class never."""
    for call in run.dump.calls:
        tool = run.tool(call.tool)
        states = [state for state, _ in run.endings.get(call.id, ())]
        if tool.is_read and (call.state == "in_doubt" or "in_doubt" in states):
            yield f"read {call.id} ({call.tool}) was in doubt"
        if call.state == "in_doubt" and run.is_at_rest and tool.replay != "never":
            yield f"call {call.id} ({call.tool}) of class {tool.replay} is left in doubt"
        if tool.replay == "never" and any(is_automatic(record) for _, record in run.endings.get(call.id, ())):
            yield f"call {call.id} ({call.tool}) of class never was resolved without a person"


def check_lock_order(run: RunIndex) -> Iterator[str]:
    """O2: one lock order: no two writers ever wait for each other."""
    if run.dump.deadlocks:
        yield f"the database broke {run.dump.deadlocks} deadlocks"


def check_ledger_is_there(run: RunIndex) -> Iterator[str]:
    """O1: where nothing was done to the system, the ledger is there for everybody; one bad write fails no other."""
    if run.history.nemeses:
        return
    for operation in run.history.operations:
        is_unavailable = operation.type == "ok" and _code(operation) == "LEDGER_UNAVAILABLE"
        if (operation.type == "fail" and operation.http is not None) or is_unavailable:
            yield f"operation {operation.n} ({operation.tool} for {operation.subject}) got {operation.http} {operation.why or 'LEDGER_UNAVAILABLE'}"


def _same_calls(run: RunIndex) -> Mapping[tuple[str, frozenset[str]], list[Operation]]:
    """Answered operations that are one and the same call, by what makes them so, with the statuses that are final for it."""
    found: dict[tuple[str, frozenset[str]], list[Operation]] = defaultdict(list)
    for operation in run.answered:
        if operation.key is not None:
            found[f"key {operation.key} of {operation.agent} with {operation.payload}", TERMINAL_STATUSES].append(operation)
        if run.tool(operation.tool).has_business_key:
            found[f"action of {operation.agent} with {operation.payload}", _DONE].append(operation)
    return found


def _result(operation: Operation) -> str | None:
    result: dict[str, Any] = dict((operation.answer or {})["result"])
    if result.get("data_omitted") in {"expired", "not_permitted"}:
        return None
    return json.dumps(result, sort_keys=True)


def _code(operation: Operation) -> str:
    return str((operation.answer or {})["result"]["reason_code"])


def _is_expired(operation: Operation) -> bool:
    return _code(operation) == "IDEMPOTENCY_KEY_EXPIRED"


CALL_RULES: dict[str, Callable[[RunIndex], Iterator[str]]] = {
    "I4": check_same_answer,
    "I6": check_fences,
    "I7": check_resolutions,
    "I8": check_answers_last,
    "I9": check_leaving_changes_nothing,
    "D1": check_leases,
    "D2": check_doubts,
    "O1": check_ledger_is_there,
    "O2": check_lock_order,
}
