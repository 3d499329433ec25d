"""Identity: a repeated call is answered from the ledger, whatever policy would say now; budgets admit exactly their limit."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import AGENT, Gateway, OpenGateway, new_key
from tests.fakes import functions

PARIS = {"city": "Paris, France"}
ALERT = {"to": "cy", "text": "Gate B7"}
MODULES = {"python_modules": ["tests.fakes.functions"]}


@pytest.fixture(autouse=True)
def arrivals() -> Iterator[list[dict[str, Any]]]:
    functions.ARRIVALS.clear()
    yield functions.ARRIVALS
    functions.ARRIVALS.clear()


async def test_answers_the_same_key_from_the_ledger(gateway: Gateway):
    key = new_key()
    first = await gateway.call("search_hotels", PARIS, idempotency_key=key, id="fc-1", run_id="r1")
    again = await gateway.call("search_hotels", PARIS, idempotency_key=key, id="fc-2", run_id="r1")
    assert again == first | {"call": {"id": "fc-2", "name": "search_hotels"}, "replayed": True}
    assert len(gateway.travel.arrivals) == 1
    kinds = [record["kind"] for record in (await gateway.decision(first["decision_id"]))["linked"]]
    assert kinds == ["outcome", "replay"]


async def test_takes_the_quoted_and_the_bare_header_for_one_key(gateway: Gateway):
    key = new_key()
    first = await gateway.call("search_hotels", PARIS, headers={"Idempotency-Key": key})
    again = await gateway.call("search_hotels", PARIS, headers={"Idempotency-Key": f'"{key}"'})
    assert (first["replayed"], again["replayed"]) == (False, True)


async def test_takes_absent_null_and_empty_arguments_for_one_call(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]
):
    add_tool("note", "note")
    gateway = await open_with(copied_bundle, **MODULES)
    key = new_key()
    setting = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada"}
    answers: list[Any] = []
    calls: list[dict[str, Any]] = [{"name": "note"}, {"name": "note", "args": None}, {"name": "note", "args": {}}]
    for call in calls:
        status, answer = await gateway.post("/v1/calls", setting | {"call": call | {"idempotency_key": key}})
        assert status == 200
        answers.append(answer)
    assert [answer["replayed"] for answer in answers] == [False, True, True]
    assert len(functions.ARRIVALS) == 1


async def test_refuses_a_key_with_other_arguments_another_tool_or_another_subject_and_reveals_nothing(gateway: Gateway):
    key = new_key()
    await gateway.call("search_hotels", PARIS, idempotency_key=key)
    for name, args, subject in (
        ("search_hotels", {"city": "Rome, Italy"}, "ada"),
        ("get_itinerary", {"itineraryId": "it-1"}, "ada"),
        ("search_hotels", PARIS, "bob"),
        ("search_hotels", {"city": 7}, "ada"),
    ):
        answer = await gateway.call(name, args, idempotency_key=key, subject=subject)
        assert (answer["result"]["status"], answer["result"]["reason_code"]) == ("blocked", "IDEMPOTENCY_KEY_REUSED")
        assert "data" not in answer["result"]
    assert len(gateway.travel.arrivals) == 1


async def test_keeps_the_keys_of_two_agents_apart(gateway: Gateway):
    key = new_key()
    mine = await gateway.call("get_itinerary", {"itineraryId": "it-1"}, idempotency_key=key)
    theirs = await gateway.call("get_itinerary", {"itineraryId": "it-1"}, idempotency_key=key, key="dev-alerts-key", workflow="trip_alerts")
    assert (mine["replayed"], theirs["replayed"]) == (False, False)
    assert mine["decision_id"] != theirs["decision_id"]


async def test_answers_from_the_ledger_also_when_policy_would_now_say_no(gateway: Gateway):
    key = new_key()
    send: dict[str, Any] = {"key": "dev-alerts-key", "workflow": "trip_alerts", "subject": "cy", "run_id": "r1"}
    first = await gateway.call("send_notification", ALERT, idempotency_key=key, **send)
    assert first["result"]["status"] == "ok"
    anew = await gateway.call("send_notification", ALERT, idempotency_key=new_key(), **send)
    assert anew["result"]["reason_code"] == "SUPPRESSED_DUPLICATE"
    again = await gateway.call("send_notification", ALERT, idempotency_key=key, **send)
    assert again == first | {"replayed": True}
    assert gateway.travel.arrivals.count("POST /notifications") == 1


async def test_tells_the_status_without_data_once_the_permission_is_gone(
    open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None]
):
    key = new_key()
    before = await open_with(copied_bundle)
    first = await before.call("search_hotels", PARIS, idempotency_key=key)
    principals = yaml.safe_load((copied_bundle / "principals.yaml").read_text())
    principals["agents"]["travel-assistant"]["permissions"].remove("hotel:read")
    edit("principals.yaml", agents=principals["agents"])
    for case in (copied_bundle / "cases").iterdir():
        case.unlink()
    after = await open_with(copied_bundle)
    again = await after.call("search_hotels", PARIS, idempotency_key=key)
    assert (again["result"]["status"], again["decision_id"]) == ("ok", first["decision_id"])
    assert (again["result"]["data"], again["result"]["data_omitted"]) == (None, "not_permitted")


async def test_tries_a_refused_call_again_under_its_key(gateway: Gateway):
    key = new_key()
    for _ in range(3):  # as often as a read is tried within its time
        await gateway.fault("GET", "/hotels", "error_500")
    first = await gateway.call("search_hotels", PARIS, idempotency_key=key)
    assert first["result"]["status"] == "temporary_error"
    again = await gateway.call("search_hotels", PARIS, idempotency_key=key)
    assert (again["result"]["status"], again["replayed"]) == ("ok", False)


async def test_joins_a_call_that_is_still_running(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("slow_note", "wait_a_moment")
    gateway = await open_with(copied_bundle, **MODULES)
    key = new_key()
    first = asyncio.create_task(gateway.call("slow_note", {}, idempotency_key=key))
    await asyncio.sleep(0.15)
    second = await gateway.call("slow_note", {}, idempotency_key=key)
    assert second == await first | {"replayed": True}
    assert len(functions.ARRIVALS) == 1


BUSINESS = {"risk": "write", "replay": "never", "idempotency": {"key": ["subject", "args.n"], "window": "30m"}}


async def test_joins_two_proposals_of_the_same_action_by_their_business_key(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]
):
    add_tool("order", "note", **BUSINESS)
    gateway = await open_with(copied_bundle, **MODULES)
    first = await gateway.call("order", {"n": 1}, workflow="trip_booking", idempotency_key=new_key(), run_id="r1")
    again = await gateway.call("order", {"n": 1}, workflow="trip_booking", idempotency_key=new_key(), run_id="r2")
    other = await gateway.call("order", {"n": 2}, workflow="trip_booking", idempotency_key=new_key(), run_id="r1")
    assert again == first | {"replayed": True}
    assert other["decision_id"] != first["decision_id"]
    assert len(functions.ARRIVALS) == 2


async def test_tells_another_agent_or_subject_nothing_of_a_business_key(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]
):
    add_tool("order", "note", **BUSINESS | {"idempotency": {"key": ["args.n"], "window": "30m"}})
    gateway = await open_with(copied_bundle, **MODULES)
    await gateway.call("order", {"n": 1}, workflow="trip_booking")
    stranger = await gateway.call("order", {"n": 1}, workflow="trip_booking", subject="bob")
    assert (stranger["result"]["status"], stranger["result"]["reason_code"]) == ("blocked", "DUPLICATE_EFFECT")
    assert len(functions.ARRIVALS) == 1


async def test_lets_only_one_of_many_equal_calls_through(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("order", "wait_a_moment", **BUSINESS)
    gateway = await open_with(copied_bundle, **MODULES)
    key = new_key()
    answers = await asyncio.gather(*(gateway.call("order", {"n": 1}, workflow="trip_booking", idempotency_key=key) for _ in range(20)))
    assert len(functions.ARRIVALS) == 1
    assert len({answer["decision_id"] for answer in answers}) == 1
    assert {answer["result"]["status"] for answer in answers} <= {"ok", "in_progress"}


async def test_an_expired_key_never_executes(gateway: Gateway, database_url: str):
    import asyncpg  # noqa: PLC0415 - only this test reaches behind the gateway

    key = new_key()
    await gateway.call("search_hotels", PARIS, idempotency_key=key)
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE claims SET expires_at = clock_timestamp()")
    await connection.close()
    answer = await gateway.call("search_hotels", PARIS, idempotency_key=key)
    assert answer["result"]["reason_code"] == "IDEMPOTENCY_KEY_EXPIRED"
    assert len(gateway.travel.arrivals) == 1


async def test_pins_a_run_to_its_workflow_and_subject(gateway: Gateway):
    await gateway.call("search_hotels", PARIS, run_id="r1")
    others: list[dict[str, Any]] = [{"subject": "bob"}, {"workflow": "trip_booking"}]
    for other in others:
        answer = await gateway.call("search_hotels", PARIS, run_id="r1", **other)
        assert answer["result"]["reason_code"] == "RUN_MISMATCH"


async def test_refuses_the_fourth_call_of_a_run_under_a_budget_of_three(open_with: OpenGateway, copied_bundle: Path):
    (copied_bundle / "budgets.yaml").write_text(yaml.safe_dump([{"name": "few_calls", "per": ["run"], "unit": "calls", "limit": 3}]))
    gateway = await open_with(copied_bundle)
    codes = [(await gateway.call("search_hotels", PARIS, run_id="r1"))["result"]["reason_code"] for _ in range(4)]
    assert codes == ["EXECUTION_SUCCEEDED"] * 3 + ["BUDGET_CALLS_EXHAUSTED"]
    assert (await gateway.call("search_hotels", PARIS, run_id="r2"))["result"]["status"] == "ok"


async def test_admits_fifty_of_a_hundred_calls_of_ten_cents_against_five_dollars(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]
):
    add_tool("paid", "note", cost={"usd": "0.10"})
    (copied_bundle / "budgets.yaml").write_text(
        yaml.safe_dump(
            [{"name": "spend", "per": ["subject"], "unit": "usd", "limit": "5.00", "window": {"every": "day", "timezone": "UTC"}}]
        )
    )
    gateway = await open_with(copied_bundle, **MODULES)
    answers = await asyncio.gather(*(gateway.call("paid", {"n": n}) for n in range(100)))
    codes = [answer["result"]["reason_code"] for answer in answers]
    assert (codes.count("EXECUTION_SUCCEEDED"), codes.count("BUDGET_COST_EXHAUSTED")) == (50, 50)
    assert len(functions.ARRIVALS) == 50


async def test_cleans_a_strange_answer_and_gives_the_same_again(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("strange", "strange_answer", record={"level": "full"})
    gateway = await open_with(copied_bundle, **MODULES)
    key = new_key()
    first = await gateway.call("strange", {}, idempotency_key=key)
    assert first["result"]["data"] == {"id": "m1", "trace": "x\ufffdy", "score": None, "s": "\ufffd"}
    assert (await gateway.call("strange", {}, idempotency_key=key))["result"] == first["result"]
    assert (await gateway.payloads(first["decision_id"]))["result"] == {"result": first["result"]["data"]}


@pytest.mark.parametrize(
    ("function", "status", "code"), [("reject", "failed", "EXECUTION_REJECTED"), ("not_sent", "temporary_error", "NO_EFFECT_PROVEN")]
)
async def test_lets_a_python_tool_say_what_did_not_happen(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None], function: str, status: str, code: str
):
    add_tool("python_tool", function)
    gateway = await open_with(copied_bundle, **MODULES)
    answer = await gateway.call("python_tool", {})
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == (status, code)
    assert "SECRET-TEXT" not in str(await gateway.decision(answer["decision_id"]))
    assert AGENT not in str(answer)


async def test_a_key_that_was_answered_through_the_business_key_stays_bound_to_that_call(
    open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]
):
    add_tool("order", "note", **BUSINESS | {"idempotency": {"key": ["subject", "args.n"], "window": "1s"}})
    gateway = await open_with(copied_bundle, **MODULES)
    order: dict[str, Any] = {"workflow": "trip_booking"}
    first = await gateway.call("order", {"n": 1}, idempotency_key=new_key(), **order)
    key = new_key()
    joined = await gateway.call("order", {"n": 1}, idempotency_key=key, **order)
    other = await gateway.call("order", {"n": 2}, idempotency_key=key, **order)
    assert (joined["decision_id"], other["result"]["reason_code"]) == (first["decision_id"], "IDEMPOTENCY_KEY_REUSED")
    await asyncio.sleep(1.1)  # the business key is free again; the transport key is not
    again = await gateway.call("order", {"n": 1}, idempotency_key=key, **order)
    assert (again["decision_id"], again["replayed"]) == (first["decision_id"], True)
    assert len(functions.ARRIVALS) == 1


async def test_hides_the_data_of_an_earlier_call_once_the_permission_is_gone(
    open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None]
):
    before = await open_with(copied_bundle)
    first = await before.call("search_hotels", PARIS)
    principals = yaml.safe_load((copied_bundle / "principals.yaml").read_text())
    principals["agents"]["travel-assistant"]["act_for"].remove("ada")
    edit("principals.yaml", agents=principals["agents"])
    for case in (copied_bundle / "cases").iterdir():
        case.unlink()
    after = await open_with(copied_bundle)
    _, now = await after.get(f"/v1/calls/{first['decision_id']}")
    assert (now["result"]["status"], now["result"]["data"], now["result"]["data_omitted"]) == ("ok", None, "not_permitted")


async def test_many_equal_sends_at_once_are_one_and_none_is_called_suppressed(gateway: Gateway):
    key = new_key()
    send: dict[str, Any] = {"key": "dev-alerts-key", "workflow": "trip_alerts", "subject": "cy", "run_id": "r1"}
    answers = await asyncio.gather(*(gateway.call("send_notification", ALERT, idempotency_key=key, **send) for _ in range(60)))
    assert {answer["result"]["status"] for answer in answers} <= {"ok", "in_progress"}
    assert len({answer["decision_id"] for answer in answers}) == 1
    assert gateway.travel.arrivals.count("POST /notifications") == 1
