"""Runs made up by hand for the checker's own tests: one good run, and pieces to break it with."""

import hashlib
import json
from dataclasses import replace
from typing import Any

from tests.faults.evidence import BudgetFacts, BudgetRow, Call, Dump, Effect, History, Hold, KeyClaim, Operation, Record, Setup, ToolFacts
from tests.faults.run_index import RunIndex

BUDGET = ("spend_total", '["a","r1"]', "total")
SETUP = Setup(
    tools={
        "look": ToolFacts(replay="safe", is_read=True, timeout_s=0.5),
        "write_keyed": ToolFacts(replay="keyed", is_read=False, timeout_s=0.5, has_business_key=True),
        "write_probe": ToolFacts(replay="probe", is_read=False, timeout_s=0.5),
        "write_never": ToolFacts(replay="never", is_read=False, timeout_s=0.5),
        "spend": ToolFacts(replay="never", is_read=False, timeout_s=0.5, costs={"usd": 100_000}),
        "write_agreed": ToolFacts(replay="never", is_read=False, timeout_s=0.5, needs_person=True),
        "send": ToolFacts(replay="never", is_read=False, timeout_s=0.5, is_once_per_subject=True),
    },
    budgets={"spend_total": BudgetFacts(unit="usd", limit=5_000_000, per=("run",), tools=("spend",))},
)


def operation(call: str | None = "d1", status: str = "ok", **more: Any) -> Operation:
    """An answered operation on `call`."""
    reason = more.pop("reason", "EXECUTION_SUCCEEDED")
    decision = more.pop("decision", {"effect": "allow", "reason_code": "POLICY_ALLOWED"})
    result: dict[str, Any] = {"status": status, "reason_code": reason} | more.pop("result", {})
    answer = {"decision_id": call, "decision": decision, "result": result, "replayed": more.pop("replayed", False)}
    given: dict[str, Any] = {
        "n": 0, "agent": "first-agent", "subject": "ada", "run_id": "r1", "tool": "spend", "args": {"action": "a1"}, "key": "k1",
        "gateway": "g1", "began": 10.0, "ended": 12.0, "type": "ok", "http": 200, "answer": answer,
    }  # fmt: skip
    return Operation(**given | more)


def effect(event: str = "arrival", call: str = "d1", **more: Any) -> Effect:
    """A line of the effect ledger."""
    given: dict[str, Any] = {
        "event": event, "at": 11.0, "tool": "spend", "call_id": call, "key": None, "action": "a1", "digest": "x", "mode": "ok",
        "is_admitted": True,
    }  # fmt: skip
    return Effect(**given | more)


def record(id_: str, position: int, *, kind: str = "decision", about: str | None = None, **document: Any) -> Record:
    """A record whose bytes and leaf are right."""
    given: dict[str, Any] = {
        "decision_id": id_, "position": position, "kind": kind, "agent": "first-agent", "subject": "ada", "run_id": "r1", "tool": "spend",
        "effect": "allow", "reason_code": "POLICY_ALLOWED", "status": None, "key_digest": "k1", "budgets": [], "outcome": None,
    }  # fmt: skip
    whole = given | document
    body = json.dumps(whole).encode()
    leaf = hashlib.sha256(b"\x00" + body).digest()
    return Record(id=id_, position=position, at=10.5 + position / 100, kind=kind, about=about, body=body, leaf=leaf, document=whole)


def ending(id_: str, position: int, state: str, *, about: str = "d1", kind: str = "outcome", status: str = "ok", **outcome: Any) -> Record:
    """An outcome or resolution record."""
    settled = [{"name": "spend_total", "settled": 100_000}] if state in {"succeeded", "failed"} else []
    return record(id_, position, kind=kind, about=about, status=status, outcome={"state": state} | outcome, budgets=settled)


def call(id_: str = "d1", state: str = "succeeded", **more: Any) -> Call:
    """An admitted call."""
    given: dict[str, Any] = {
        "id": id_, "agent": "first-agent", "subject": "ada", "run_id": "r1", "tool": "spend", "state": state, "admitted_at": 10.5,
        "lease_until": 16.0,
    }  # fmt: skip
    return Call(**given | more)


HELD = [{"name": "spend_total", "unit": "usd", "reserved": 100_000, "spent": 0, "held": 100_000, "limit": 5_000_000}]


def good_run() -> RunIndex:
    """One call that was admitted, executed once, booked and answered."""
    dump = Dump(
        taken_at=100.0,
        calls=(call(),),
        holds=(Hold(call_id="d1", budget=BUDGET, amount=100_000, state="settled", settled=100_000),),
        budgets=(BudgetRow(budget=BUDGET, reserved=0, spent=100_000),),
        records=(record("d1", 0, budgets=HELD), ending("o1", 1, "succeeded")),
        claims=(KeyClaim(call_id="d1", expires_at=90.0),),
        log_size=2,
    )
    return RunIndex(history=History(operations=(operation(),)), effects=[effect(), effect("applied")], dump=dump, setup=SETUP)


def with_dump(run: RunIndex, **changes: Any) -> RunIndex:
    """The run with another database."""
    return replace(run, dump=replace(run.dump, **changes))


def with_operations(run: RunIndex, *operations: Operation) -> RunIndex:
    """The run with more operations."""
    return replace(run, history=replace(run.history, operations=(*run.history.operations, *operations)))


def with_effects(run: RunIndex, *effects: Effect) -> RunIndex:
    """The run with more lines in the effect ledger."""
    return replace(run, effects=[*run.effects, *effects])


def with_tool(run: RunIndex, tool: str) -> RunIndex:
    """The run with another tool in all its parts."""
    dump = replace(run.dump, calls=tuple(replace(each, tool=tool) for each in run.dump.calls))
    history = replace(run.history, operations=tuple(replace(each, tool=tool) for each in run.history.operations))
    return replace(run, dump=dump, history=history, effects=[replace(each, tool=tool) for each in run.effects])
