"""Rounds: N calls in, N results out, in order, whatever happens to each."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Gateway, OpenGateway, new_key
from tests.fakes import functions

PARIS = {"city": "Paris, France"}
ROME = {"city": "Rome, Italy"}
BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}
MODULES = {"python_modules": ["tests.fakes.functions"]}


@pytest.fixture(autouse=True)
def arrivals() -> Iterator[list[dict[str, Any]]]:
    functions.ARRIVALS.clear()
    yield functions.ARRIVALS
    functions.ARRIVALS.clear()


async def test_answers_six_mixed_calls_in_order(gateway: Gateway):
    calls: list[dict[str, Any]] = [
        {"id": "a", "name": "search_hotels", "args": PARIS},
        {"id": "b", "name": "search_hotels", "args": ROME},
        {"name": "get_itinerary", "args": {"itineraryId": "it-1"}},
        {"id": "d", "name": "book_hotel", "args": BOOKING},
        {"id": "e", "name": "delete_everything", "args": {}},
        {"id": "f", "name": "search_hotels", "args": {"town": "Paris"}},
    ]
    answers = await gateway.round(calls, workflow="trip_booking")
    assert [answer["call"] for answer in answers] == [
        {"id": "a", "name": "search_hotels"},
        {"id": "b", "name": "search_hotels"},
        {"name": "get_itinerary"},
        {"id": "d", "name": "book_hotel"},
        {"id": "e", "name": "delete_everything"},
        {"id": "f", "name": "search_hotels"},
    ]
    assert [answer["result"]["status"] for answer in answers] == ["ok", "ok", "ok", "confirmation_required", "blocked", "invalid_arguments"]
    assert len({answer["decision_id"] for answer in answers}) == 6
    records = [(await gateway.decision(answer["decision_id"]))["record"] for answer in answers]
    assert [record["round"]["position"] for record in records] == [0, 1, 2, 3, 4, 5]
    assert len({record["round"]["id"] for record in records}) == 1
    positions = [record["position"] for record in records]
    assert positions == sorted(positions)


async def test_runs_a_model_id_that_comes_twice_once(gateway: Gateway):
    twice: list[dict[str, Any]] = [{"id": "a", "name": "search_hotels", "args": PARIS | {"maxNightlyPriceUsd": 250}}] * 2
    twice[1] = {"id": "a", "name": "search_hotels", "args": {"maxNightlyPriceUsd": 250.0} | PARIS}
    first, second = await gateway.round(twice)
    assert first == second
    assert len(gateway.travel.arrivals) == 1


async def test_refuses_all_places_of_an_id_that_names_different_calls(gateway: Gateway):
    calls: list[dict[str, Any]] = [
        {"id": "a", "name": "search_hotels", "args": PARIS},
        {"id": "b", "name": "search_hotels", "args": PARIS},
        {"id": "a", "name": "search_hotels", "args": ROME},
    ]
    answers = await gateway.round(calls)
    assert [answer["result"]["reason_code"] for answer in answers] == ["CALL_ID_REUSED", "EXECUTION_SUCCEEDED", "CALL_ID_REUSED"]
    assert answers[0]["result"]["status"] == "invalid_arguments"
    assert len(gateway.travel.arrivals) == 1


async def test_runs_equal_calls_without_ids_twice(gateway: Gateway):
    answers = await gateway.round([{"name": "search_hotels", "args": PARIS}] * 2)
    assert [answer["call"] for answer in answers] == [{"name": "search_hotels"}] * 2
    assert answers[0]["decision_id"] != answers[1]["decision_id"]
    assert len(gateway.travel.arrivals) == 2


async def test_means_nothing_by_a_model_id_across_rounds(gateway: Gateway):
    for _ in range(2):
        (answer,) = await gateway.round([{"id": "a", "name": "search_hotels", "args": PARIS}], run_id="r1")
        assert answer["replayed"] is False
    assert len(gateway.travel.arrivals) == 2


async def test_gives_each_call_of_a_round_its_own_key_from_the_header(gateway: Gateway):
    key = {"Idempotency-Key": new_key()}
    calls = [{"name": "search_hotels", "args": PARIS}] * 2
    first = await gateway.round(calls, headers=key, run_id="r1")
    again = await gateway.round(calls, headers=key, run_id="r1")
    assert [answer["replayed"] for answer in (*first, *again)] == [False, False, True, True]
    assert [answer["decision_id"] for answer in first] == [answer["decision_id"] for answer in again]


async def test_refuses_two_keys_for_one_call(gateway: Gateway):
    call = {"name": "search_hotels", "args": PARIS, "idempotency_key": new_key()}
    body = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada", "calls": [call]}
    status, problem = await gateway.post("/v1/rounds", body, headers={"Idempotency-Key": new_key()})
    assert (status, problem["code"]) == (400, "IDEMPOTENCY_KEY_INVALID")


async def test_answers_every_call_when_one_tool_hangs(open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None]):
    edit("tools/get_itinerary.yaml", timeout="300ms")
    gateway = await open_with(copied_bundle)
    await gateway.fault("GET", "/itineraries/it-1", "slow")
    answers = await gateway.round(
        [
            {"name": "search_hotels", "args": PARIS},
            {"name": "get_itinerary", "args": {"itineraryId": "it-1"}},
            {"name": "search_hotels", "args": ROME},
        ]
    )
    assert [answer["result"]["status"] for answer in answers] == ["ok", "temporary_error", "ok"]


async def test_runs_the_calls_of_a_round_side_by_side(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("slow_note", "wait_a_moment")
    gateway = await open_with(copied_bundle, **MODULES)
    began = asyncio.get_running_loop().time()
    answers = await gateway.round([{"name": "slow_note", "args": {"n": n}} for n in range(20)])
    took = asyncio.get_running_loop().time() - began
    assert all(answer["result"]["status"] == "ok" for answer in answers)
    assert took < 20 * 0.3 / 2  # one after the other they would sleep six seconds


async def test_finishes_what_it_began_when_the_client_leaves(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("slow_note", "wait_a_moment")
    gateway = await open_with(copied_bundle, **MODULES)
    key = new_key()
    leaving = asyncio.create_task(gateway.call("slow_note", {}, idempotency_key=key, run_id="r1"))
    await asyncio.sleep(0.15)
    leaving.cancel()
    await asyncio.sleep(0.5)
    again = await gateway.call("slow_note", {}, idempotency_key=key, run_id="r1")
    assert (again["result"]["status"], again["replayed"]) == ("ok", True)
    assert len(functions.ARRIVALS) == 1


async def test_holds_no_database_connection_while_tools_run(open_with: OpenGateway, copied_bundle: Path, add_tool: Callable[..., None]):
    add_tool("slow_note", "wait_a_moment")
    gateway = await open_with(copied_bundle, database_connections=2, **MODULES)
    waiting = asyncio.create_task(gateway.round([{"name": "slow_note", "args": {"n": n}} for n in range(40)]))
    await asyncio.sleep(0.1)
    status, page = await gateway.get("/v1/decisions", key="dev-auditor-key")
    assert (status, not waiting.done()) == (200, True)
    assert {answer["result"]["status"] for answer in await waiting} == {"ok"}
    assert page["items"]


async def test_refuses_two_keys_for_the_two_places_of_one_call(gateway: Gateway):
    twins = [{"id": "a", "name": "search_hotels", "args": PARIS, "idempotency_key": new_key()} for _ in range(2)]
    body = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada", "calls": twins}
    status, problem = await gateway.post("/v1/rounds", body)
    assert (status, problem["errors"][0]["pointer"]) == (400, "/calls/1/idempotency_key")
    assert gateway.travel.arrivals == []
