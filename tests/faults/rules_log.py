"""Invariants about the decision log."""

import hashlib
from collections.abc import Callable, Iterator

from tests.faults.evidence import Operation, Record
from tests.faults.run_index import TERMINAL_STATUSES, RunIndex


def check_answers_are_recorded(run: RunIndex) -> Iterator[str]:
    """L1: every answer names a record that exists, of the same agent, with the same outcome."""
    for operation in run.history.operations:
        if operation.type == "ok" and operation.decision_id is None and _reason(operation) != "LEDGER_UNAVAILABLE":
            yield f"an answer ({_reason(operation)}) names no decision"
    for operation in run.answered:
        record = run.records.get(operation.decision_id or "")
        if record is None or record.kind != "decision":
            yield f"answer {operation.status} names {operation.decision_id}, which is no decision record"
        elif record.document["agent"] != operation.agent:
            yield f"answer to {operation.agent} names {record.id}, a decision of {record.document['agent']}"
        else:
            yield from _compare(run, operation, record)


def _compare(run: RunIndex, operation: Operation, record: Record) -> Iterator[str]:
    answer = operation.answer or {}
    if not answer["replayed"] and (answer["decision"]["effect"], answer["decision"]["reason_code"]) != (
        record.document["effect"],
        record.document["reason_code"],
    ):
        yield f"answer says {answer['decision']}, record {record.id} {record.document['effect']} {record.document['reason_code']}"
    told = {linked.document["status"] for _, linked in run.endings.get(record.id, ())}
    if record.document["effect"] == "allow":
        if operation.status in TERMINAL_STATUSES | {"temporary_error"} and operation.status not in told:
            yield f"call {record.id} was answered {operation.status}; recorded: {sorted(map(str, told)) or 'nothing'}"
    elif record.document["status"] != operation.status:
        yield f"call {record.id} was answered {operation.status}; recorded: {record.document['status']}"


def check_effects_are_recorded(run: RunIndex) -> Iterator[str]:
    """L2: every call that reached a tool has, once it ended, its outcome in the log, after its decision."""
    for call_id in run.arrivals:
        call, decision = run.calls.get(call_id), run.records.get(call_id)
        endings = run.endings.get(call_id, [])
        if call is None or (not run.is_running(call) and not endings) or (run.is_at_rest and not endings):
            yield f"call {call_id} reached its tool and has no outcome record"
        elif decision is not None and any(record.position < decision.position for _, record in endings):
            yield f"call {call_id} has an outcome before its decision"


def check_positions(run: RunIndex) -> Iterator[str]:
    """L3: positions have no gap, and the log is as long as its head says."""
    positions = [record.position for record in run.dump.records]
    if positions != list(range(len(positions))):
        gap = next(index for index, position in enumerate(positions) if index != position)
        yield f"position {positions[gap]} stands where {gap} should"
    if run.dump.log_size != len(positions):
        yield f"the head says {run.dump.log_size} records, there are {len(positions)}"


def check_leaves(run: RunIndex) -> Iterator[str]:
    """L4: each leaf is SHA-256(0x00 || the exact stored bytes), and the bytes say what the columns say."""
    for record in run.dump.records:
        if hashlib.sha256(b"\x00" + record.body).digest() != record.leaf:
            yield f"record {record.position} has another leaf than its bytes"
        said = record.document.get("decision_id"), record.document.get("position"), record.document.get("kind")
        if said != (record.id, record.position, record.kind):
            yield f"record {record.position} says of itself that it is {said}"


def check_revision_in_force(run: RunIndex) -> Iterator[str]:
    """R1: nothing is allowed under a revision after its replacement was committed."""
    replaced = [nemesis.at for nemesis in run.history.nemeses if nemesis.what == "revision replaced"]
    for record in run.dump.records if replaced else ():
        if record.kind == "decision" and record.document["effect"] == "allow" and record.at > min(replaced):
            yield f"record {record.position} allowed {record.document['tool']} {record.at - min(replaced):.3f} s after its revision was replaced"


def _reason(operation: Operation) -> str:
    return str((operation.answer or {})["result"]["reason_code"])


LOG_RULES: dict[str, Callable[[RunIndex], Iterator[str]]] = {
    "L1": check_answers_are_recorded,
    "L2": check_effects_are_recorded,
    "L3": check_positions,
    "L4": check_leaves,
    "R1": check_revision_in_force,
}
