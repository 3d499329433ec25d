"""A checker that cannot fail proves nothing: for each invariant, a run made by hand that breaks it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.checker import RULES, check
from tests.faults.evidence import BudgetRow, Grant, Hold, KeyClaim, Nemesis
from tests.faults.made_up_runs import (
    BUDGET,
    HELD,
    call,
    effect,
    ending,
    good_run,
    operation,
    record,
    with_dump,
    with_effects,
    with_operations,
    with_tool,
)
from tests.faults.run_index import RunIndex

GOOD = good_run()
DUMP = GOOD.dump
DECISION, OUTCOME = DUMP.records
IN_DOUBT = ending("o1", 1, "in_doubt", status="outcome_unknown")
RESOLVED = ending("o2", 2, "succeeded", kind="resolution", method="person", evidence="seen")


def _doubtful(run: RunIndex, **changes: Any) -> RunIndex:
    """The good run with its call still in doubt and its budget held."""
    quiet = replace(run, history=replace(run.history, operations=(operation(status="outcome_unknown"),)))
    return with_dump(
        quiet,
        calls=(call(state="in_doubt", **changes),),
        holds=(Hold(call_id="d1", budget=BUDGET, amount=100_000, state="held", settled=0),),
        budgets=(BudgetRow(budget=BUDGET, reserved=100_000, spent=0),),
        records=(DECISION, IN_DOUBT),
    )


def _resolved(*records: Any) -> RunIndex:
    return with_dump(GOOD, records=(DECISION, IN_DOUBT, *records), log_size=2 + len(records))


def _answered_twice(**changes: Any) -> RunIndex:
    return with_operations(GOOD, operation(n=1, began=13.0, ended=14.0, replayed=True, **changes))


def _left(run: RunIndex) -> RunIndex:
    left = operation(type="info", answer=None, why="client left")
    history = replace(run.history, operations=(left,))
    doubtful = _doubtful(run)
    return replace(doubtful, history=history, effects=run.effects)


def _sent_twice() -> RunIndex:
    other = record("d2", 2, key_digest="k2"), ending("o2", 3, "succeeded", about="d2")
    changed = with_dump(GOOD, records=(*DUMP.records, *other), log_size=4, calls=(call(), call("d2")))
    return with_tool(with_effects(changed, effect(call="d2"), effect("applied", call="d2")), "send")


def _agreed(**document: Any) -> RunIndex:
    """A call that a person agreed to: p1 asked, d1 used the yes."""
    asked = record("p1", 0, effect="confirm", status="confirmation_required")
    records = (asked, replace(record("d1", 1, approval_id="p1", budgets=HELD, **document), at=10.5), ending("o1", 2, "succeeded"))
    return with_dump(GOOD, records=records, grants=(Grant(id="p1", state="consumed", consumed_by="d1"),), log_size=3)


BROKEN: list[tuple[str, str, Callable[[], RunIndex]]] = [
    ("I1", "a call that may not be repeated is sent again", lambda: with_effects(GOOD, effect(at=13.0))),
    (
        "I1",
        "a keyed call is sent under two downstream keys",
        lambda: with_tool(with_effects(GOOD, effect(key="one"), effect(key="two")), "write_keyed"),
    ),
    ("I2", "a call has two effects", lambda: with_effects(GOOD, effect("applied", at=13.0))),
    ("I3", "a tool is reached without a record", lambda: with_effects(GOOD, effect(call="d9"))),
    ("I3", "a tool is reached before the record's time", lambda: replace(GOOD, effects=[effect(at=10.0), effect("applied")])),
    ("I3", "a tool sees no committed record", lambda: replace(GOOD, effects=[effect(is_admitted=False), effect("applied")])),
    ("I3", "a tool is reached after a denial", lambda: with_dump(GOOD, records=(record("d1", 0, effect="deny", budgets=HELD), OUTCOME))),
    ("I4", "a repeat tells another result", lambda: _answered_twice(result={"data": 2})),
    ("I4", "another input under the key is executed", lambda: _answered_twice(args={"action": "a2"})),
    (
        "I5",
        "two decisions under one key both have an effect",
        lambda: with_effects(
            with_dump(
                GOOD, records=(*DUMP.records, record("d2", 2), ending("o2", 3, "succeeded", about="d2")), log_size=4, calls=(call(), call("d2"))
            ),
            effect(call="d2", action="a2"),
            effect("applied", call="d2", action="a2"),
        ),
    ),
    ("I6", "an ended call is ended again", lambda: with_dump(GOOD, records=(*DUMP.records, ending("o2", 2, "failed")), log_size=3)),
    ("I6", "a call stands elsewhere than its last record left it", lambda: with_dump(GOOD, calls=(call(state="failed"),))),
    ("I7", "a doubt ends by a late outcome without evidence", lambda: _resolved(ending("o2", 2, "succeeded"))),
    ("I7", "a resolution names no evidence", lambda: _resolved(ending("o2", 2, "succeeded", kind="resolution", method="person"))),
    ("I8", "what was answered as done is in doubt", lambda: replace(_doubtful(GOOD), history=GOOD.history)),
    ("I8", "a later answer takes the first one back", lambda: _answered_twice(status="outcome_unknown")),
    ("I9", "a client that leaves puts its call in doubt", lambda: _left(GOOD)),
    ("I10", "an expired key executes", lambda: with_dump(GOOD, claims=(KeyClaim(call_id="d1", expires_at=10.9),))),
    (
        "I11",
        "one action has two effects",
        lambda: with_tool(
            with_effects(
                with_dump(GOOD, records=(*DUMP.records, record("d2", 2, key_digest="k2"), ending("o2", 3, "succeeded", about="d2"))),
                effect(call="d2"),
                effect("applied", call="d2"),
            ),
            "write_keyed",
        ),
    ),
    ("I12", "a call that was not sent reaches its tool", lambda: with_dump(GOOD, records=(DECISION, ending("o1", 1, "open", phase="not_sent")))),
    (
        "I12",
        "a tool is reached though the ledger took nothing",
        lambda: replace(GOOD, history=replace(GOOD.history, operations=(operation(type="fail", answer=None, http=503),))),
    ),
    ("B1", "an admission goes above the limit", lambda: with_dump(GOOD, records=(record("d1", 0, budgets=[HELD[0] | {"spent": 4_950_000}]), OUTCOME))),
    ("B1", "a budget holds more than its limit", lambda: with_dump(GOOD, budgets=(BudgetRow(budget=BUDGET, reserved=0, spent=5_100_000),))),
    ("B2", "a budget drifts from its reservations", lambda: with_dump(GOOD, budgets=(BudgetRow(budget=BUDGET, reserved=100_000, spent=100_000),))),
    ("B3", "effects cost more than the limit", lambda: with_effects(GOOD, *[effect("applied")] * 50)),
    (
        "B4",
        "a reservation is settled twice",
        lambda: with_dump(GOOD, records=(*DUMP.records, ending("o2", 2, "succeeded")), log_size=3),
    ),
    (
        "B5",
        "an ended call still holds its budget",
        lambda: with_dump(
            GOOD,
            holds=(Hold(call_id="d1", budget=BUDGET, amount=100_000, state="held", settled=0),),
            budgets=(BudgetRow(budget=BUDGET, reserved=100_000, spent=0),),
        ),
    ),
    ("B5", "a call in doubt holds nothing", lambda: with_dump(_doubtful(GOOD), holds=(), budgets=())),
    ("L1", "an answer names a decision that does not exist", lambda: with_operations(GOOD, operation("d9", key="k9"))),
    ("L1", "an answer names another agent's decision", lambda: with_operations(GOOD, operation(agent="second-agent"))),
    ("L1", "an answer tells another outcome than the record", lambda: with_dump(GOOD, records=(DECISION, ending("o1", 1, "succeeded", status="failed")))),
    (
        "L1",
        "a refusal tells another reason than its record",
        lambda: with_operations(
            GOOD, operation("d1", "blocked", key=None, reason="TOOL_UNKNOWN", decision={"effect": "deny", "reason_code": "TOOL_UNKNOWN"})
        ),
    ),
    ("L2", "a call that reached its tool has no outcome record", lambda: with_dump(GOOD, records=(DECISION,), log_size=1)),
    ("L3", "a position is missing", lambda: with_dump(GOOD, records=(DECISION, ending("o1", 2, "succeeded")))),
    ("L3", "the log is shorter than its head says", lambda: with_dump(GOOD, log_size=3)),
    ("L4", "a record's bytes were changed", lambda: with_dump(GOOD, records=(DECISION, replace(OUTCOME, body=OUTCOME.body + b" ")))),
    ("L4", "a record stands under another position", lambda: with_dump(GOOD, records=(replace(DECISION, position=1), replace(OUTCOME, position=0)))),
    ("T1", "what is told as done was not done", lambda: replace(GOOD, effects=[effect()])),
    ("T1", "what is told as nothing was done", lambda: replace(GOOD, history=replace(GOOD.history, operations=(operation(status="temporary_error"),)))),
    ("D1", "a call runs past its lease", lambda: with_dump(_doubtful(GOOD), calls=(call(state="running"),), records=(DECISION,))),
    ("D2", "a keyed call is left in doubt", lambda: with_tool(_doubtful(GOOD), "write_keyed")),
    ("D2", "a read is in doubt", lambda: with_tool(_doubtful(GOOD), "look")),
    ("D2", "a call of class never is resent", lambda: _resolved(ending("o2", 2, "succeeded", kind="resolution", method="sent again (never)", evidence="x"))),
    ("O1", "a good call finds no ledger", lambda: with_operations(GOOD, operation(type="fail", answer=None, http=503, key="k9", args={"action": "a9"}))),
    (
        "R1",
        "a call is allowed after its revision was replaced",
        lambda: replace(GOOD, history=replace(GOOD.history, nemeses=(Nemesis(at=10.0, what="revision replaced", target="controls"),))),
    ),
    ("O2", "two writers wait for each other", lambda: with_dump(GOOD, deadlocks=1)),
    ("P1", "a subject gets two messages", _sent_twice),
    ("A1", "a call that needs a person was made without one", lambda: with_tool(GOOD, "write_agreed")),
    (
        "A1",
        "one agreement has two effects",
        lambda: with_effects(with_dump(_agreed(), records=(*_agreed().dump.records, record("d2", 3, approval_id="p1"))), effect("applied", call="d2")),
    ),
    ("A2", "another call than the one that was agreed to", lambda: _agreed(arguments_digest="of something else")),
    ("A3", "a call without effect keeps its agreement", lambda: with_dump(_agreed(), calls=(call(state="open"),))),
    ("A3", "an agreement that was used is free", lambda: with_dump(_agreed(), grants=(Grant(id="p1", state="granted", consumed_by=None),))),
]  # fmt: skip


def test_a_good_run_breaks_nothing():
    assert check(GOOD) == []


def test_an_agreement_that_its_own_call_used_breaks_nothing():
    assert check(_agreed()) == []


def test_a_doubt_of_class_never_may_wait_for_a_person_and_be_ended_by_one():
    assert check(_doubtful(GOOD)) == []
    assert check(_resolved(RESOLVED)) == []


def test_calls_on_their_way_break_nothing_while_the_run_is_not_at_rest():
    running = with_dump(
        _doubtful(GOOD, lease_until=99.0), calls=(call(state="running", lease_until=99.0),), records=(DECISION,), log_size=1
    )
    assert check(replace(running, is_at_rest=False)) == []


@pytest.mark.parametrize(("invariant", "make"), [pytest.param(name, make, id=f"{name} {what}") for name, what, make in BROKEN])
def test_names_the_invariant_that_a_run_breaks(invariant: str, make: Callable[[], RunIndex]):
    assert invariant in {violation.invariant for violation in check(make())}


def test_every_rule_has_a_run_that_breaks_it():
    assert {name for name, _, _ in BROKEN} == set(RULES)
