"""Invariants about what reached the tools."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.faults.dump import says_not_sent
from tests.faults.run_index import NOTHING_HAPPENED_STATUSES, TERMINAL_STATUSES, RunIndex


def check_sends(run: RunIndex) -> Iterator[str]:
    """I1: what may not be repeated is sent once, and once more for each proof that nothing happened; keyed ones with one key."""
    for call_id, arrivals in run.arrivals.items():
        tool = run.tool(arrivals[0].tool)
        if tool.replay in {"never", "probe"}:
            proofs = sum(state == "open" for state, _ in run.endings.get(call_id, ()))
            if len(arrivals) > 1 + proofs:
                yield f"call {call_id} ({arrivals[0].tool}) was sent {len(arrivals)} times with {proofs} proofs of no effect"
        if tool.replay == "keyed" and len(keys := {arrival.key for arrival in arrivals}) > 1:
            yield f"call {call_id} was sent under {len(keys)} downstream keys"


def check_effects(run: RunIndex) -> Iterator[str]:
    """I2: at most one effect per call, unless repeating is safe."""
    for call_id, applied in run.applied.items():
        if len(applied) > 1 and not run.tool(applied[0].tool).is_read:
            yield f"call {call_id} ({applied[0].tool}) had {len(applied)} effects"


def check_decided_before(run: RunIndex) -> Iterator[str]:
    """I3: whatever reached a tool was allowed by a record that was committed before."""
    for call_id, arrivals in run.arrivals.items():
        record = run.records.get(call_id)
        first = min(arrivals, key=lambda arrival: arrival.at)
        if record is None or record.kind != "decision" or record.document.get("effect") != "allow":
            yield f"call {call_id} reached {first.tool} without an allow record"
        elif record.at > first.at:
            yield f"call {call_id} reached {first.tool} {record.at - first.at:.3f} s before its record"
        elif any(arrival.is_admitted is False for arrival in arrivals):
            yield f"call {call_id} reached {first.tool} before its record was committed"


def check_key_dispatched_once(run: RunIndex) -> Iterator[str]:
    """I5: of all requests under one transport key at most one has an effect."""
    effects: dict[tuple[str, str], list[str]] = defaultdict(list)
    for call_id, applied in run.applied.items():
        record = run.records.get(call_id)
        digest = record.document.get("key_digest") if record else None
        if record is not None and digest and not run.tool(applied[0].tool).is_read:
            effects[str(record.document["agent"]), str(digest)].extend(call_id for _ in applied)
    for (agent, _), calls in effects.items():
        if len(calls) > 1:
            yield f"{len(calls)} effects under one key of {agent}: {', '.join(sorted(set(calls)))}"


def check_expired_keys(run: RunIndex) -> Iterator[str]:
    """I10: an expired transport key never executes."""
    for claim in run.dump.claims:
        for arrival in run.arrivals.get(claim.call_id, ()):
            if claim.expires_at is not None and arrival.at > claim.expires_at:
                yield f"call {claim.call_id} reached {arrival.tool} {arrival.at - claim.expires_at:.3f} s after its key expired"


def check_business_key(run: RunIndex) -> Iterator[str]:
    """I11: two calls with one business key inside its window never both have an effect."""
    effects: Counter[tuple[str, str, str]] = Counter()
    for call_id, applied in run.applied.items():
        record = run.records.get(call_id)
        if record is not None and run.tool(applied[0].tool).has_business_key:
            effects[applied[0].tool, str(record.document["subject"]), applied[0].action] += len(applied)
    for (tool, subject, action), count in effects.items():
        if count > 1:
            yield f"{tool} for {subject} had {count} effects of the one action {action}"


def check_nothing_sent_without_commit(run: RunIndex) -> Iterator[str]:
    """I12: nothing is sent after an admission whose commit failed or was never heard of."""
    for call_id, endings in run.endings.items():
        arrivals = run.arrivals.get(call_id)
        if arrivals and not run.tool(arrivals[0].tool).is_read and any(says_not_sent(record) for _, record in endings):
            yield f"call {call_id} is recorded as not sent and reached its tool"
    unknown: dict[str, bool] = defaultdict(lambda: True)
    for operation in run.history.operations:
        told_nothing = operation.type == "fail" or (operation.type == "ok" and operation.decision_id is None)
        unknown[operation.args["action"]] &= told_nothing
    for arrivals in run.arrivals.values():
        if unknown.get(arrivals[0].action, False):
            yield f"action {arrivals[0].action} reached {arrivals[0].tool} though every answer was that the ledger took nothing"


def check_told_the_truth(run: RunIndex) -> Iterator[str]:
    """T1: who is told that it happened, it happened; who is told that nothing happened, nothing did."""
    for operation in run.answered:
        decision = operation.decision_id or ""
        if run.tool(operation.tool).is_read:
            continue
        effects = len(run.applied.get(decision, ()))
        if operation.status == "ok" and not effects:
            yield f"call {decision} was told as done and had no effect"
        if operation.status in NOTHING_HAPPENED_STATUSES | (TERMINAL_STATUSES & {"failed"}) and effects:
            yield f"call {decision} was told as {operation.status} and had an effect"
    for call in run.dump.calls:
        if call.state == "open" and run.applied.get(call.id) and not run.tool(call.tool).is_read:
            yield f"call {call.id} is recorded as without effect and had one"


def check_sent_once_per_subject(run: RunIndex) -> Iterator[str]:
    """P1: under the policy "only if none was sent", one message for each subject."""
    sent: Counter[str] = Counter()
    for call_id, applied in run.applied.items():
        record = run.records.get(call_id)
        if record is not None and run.tool(applied[0].tool).is_once_per_subject:
            sent[str(record.document["subject"])] += len(applied)
    for subject, count in sent.items():
        if count > 1:
            yield f"{subject} was sent {count} messages"


EFFECT_RULES: dict[str, Callable[[RunIndex], Iterator[str]]] = {
    "I1": check_sends,
    "I2": check_effects,
    "I3": check_decided_before,
    "I5": check_key_dispatched_once,
    "I10": check_expired_keys,
    "I11": check_business_key,
    "I12": check_nothing_sent_without_commit,
    "T1": check_told_the_truth,
    "P1": check_sent_once_per_subject,
}
