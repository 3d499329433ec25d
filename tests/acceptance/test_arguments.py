"""Arguments: whatever the model wrote gets a result with its paths and a record, and the service sees only what fits."""

import gzip
import json
from typing import Any

import pytest

from tests.acceptance.conftest import Gateway

PARIS = {"city": "Paris, France"}


@pytest.mark.parametrize(
    ("args", "errors"),
    [
        (PARIS | {"max": 5}, [("/max", "unknown field; allowed: city, maxNightlyPriceUsd")]),
        ({"city": 7}, [("/city", "must be a string")]),
        (PARIS | {"maxNightlyPriceUsd": "250"}, [("/maxNightlyPriceUsd", "must be a number")]),
        (PARIS | {"maxNightlyPriceUsd": True}, [("/maxNightlyPriceUsd", "must be a number")]),
        ({}, [("/city", "required")]),
        (None, [("/city", "required")]),
        ([1], [("", "must be an object")]),
        ("{}", [("", "must be an object")]),
        ({"city": "a\0b"}, [("/city", "text contains U+0000")]),
        ({"city": "\ud83d"}, [("/city", "text contains a lone surrogate")]),
        (PARIS | {"maxNightlyPriceUsd": 2**63}, [("/maxNightlyPriceUsd", "number out of range")]),
    ],
)
async def test_names_each_wrong_argument_and_never_its_value(gateway: Gateway, args: Any, errors: list[tuple[str, str]]):
    answer = await gateway.call("search_hotels", args, id="fc-1")
    result = answer["result"]
    assert (result["status"], result["reason_code"]) == ("invalid_arguments", "ARGUMENTS_INVALID")
    assert [(error["path"], error["message"]) for error in result["errors"]] == errors
    record = (await gateway.decision(answer["decision_id"]))["record"]
    assert record["outcome"]["told"]["errors"] == result["errors"]
    assert gateway.travel.arrivals == []


@pytest.mark.parametrize("depth", [33, 250, 1500, 20_000])
async def test_refuses_arguments_that_are_nested_too_deep(gateway: Gateway, depth: int):
    nested = "[" * depth + "]" * depth
    body = f'{{"workflow":"trip_planning","run_id":"r1","on_behalf_of":"ada","call":{{"name":"search_hotels","args":{{"city":{nested}}}}}}}'
    status, answer = await gateway.post("/v1/calls", body.encode())
    assert status == 200
    assert answer["result"]["reason_code"] == "ARGUMENTS_INVALID"
    assert "nested deeper than 32 levels" in {error["message"] for error in answer["result"]["errors"]}
    await gateway.decision(answer["decision_id"])
    assert gateway.travel.arrivals == []


async def test_refuses_a_number_of_five_thousand_digits(gateway: Gateway):
    body = (
        '{"workflow":"trip_planning","run_id":"r1","on_behalf_of":"ada",'
        f'"call":{{"name":"search_hotels","args":{{"city":"x","maxNightlyPriceUsd":{"9" * 5000}}}}}}}'
    )
    status, answer = await gateway.post("/v1/calls", body.encode())
    assert (status, answer["result"]["reason_code"]) == (200, "ARGUMENTS_INVALID")
    assert (await gateway.call("search_hotels", PARIS))["result"]["status"] == "ok"


@pytest.mark.parametrize(
    "args",
    [
        '{"city":"x","maxNightlyPriceUsd":NaN}',
        '{"city":"x","maxNightlyPriceUsd":-Infinity}',
        '{"city":"x","city":"y"}',
        '{"city":"x","\\u0063ity":"y"}',
        '{"city":"x"',
        '{"city":"x",}',
    ],
)
async def test_answers_400_for_what_is_not_strict_json(gateway: Gateway, args: str):
    body = f'{{"workflow":"trip_planning","run_id":"r1","on_behalf_of":"ada","call":{{"name":"search_hotels","args":{args}}}}}'
    status, problem = await gateway.post("/v1/calls", body.encode())
    assert (status, problem["code"]) == (400, "NOT_JSON")
    assert gateway.travel.arrivals == []


async def test_treats_a_number_that_overflows_as_the_models_word(gateway: Gateway):
    body = '{"workflow":"trip_planning","run_id":"r1","on_behalf_of":"ada","call":{"name":"search_hotels","args":{"city":"x","maxNightlyPriceUsd":1e400}}}'
    status, answer = await gateway.post("/v1/calls", body.encode())
    assert (status, answer["result"]["errors"]) == (200, [{"path": "/maxNightlyPriceUsd", "message": "number out of range"}])


@pytest.mark.parametrize("name", [None, 7, "", ["x"]])
async def test_gives_a_call_without_a_usable_name_a_result(gateway: Gateway, name: Any):
    answer = await gateway.call(name, {})
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == ("invalid_arguments", "CALL_NAME_MISSING")
    assert answer["call"].keys() == {"name"}


async def test_carries_a_strange_name_as_an_unknown_tool(gateway: Gateway):
    for name in ("no\0such", "\ud83d", "x" * 10_000, "../../etc"):
        answer = await gateway.call(name, {})
        assert answer["result"]["reason_code"] == "TOOL_UNKNOWN"
        await gateway.decision(answer["decision_id"])


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"workflow": None}, "/workflow", None),
        ({"run_id": 7}, "/run_id", None),
        ({"agent": "root"}, "/agent", "unknown field; allowed: workflow, run_id, on_behalf_of, context, call"),
        (
            {"call": {"name": "x", "idempotencyKey": "k"}},
            "/call/idempotencyKey",
            "unknown field; allowed: id, name, args, idempotency_key, approval_id",
        ),
        ({"call": {"name": "x", "idempotency_key": "short"}}, "/call/idempotency_key", None),
        ({"call": {"name": "x", "idempotency_key": "k\r\nX-Admin: 1234567"}}, "/call/idempotency_key", None),
        ({"context": {"requestVersion": "a\0"}}, "/context/requestVersion", "text contains U+0000"),
    ],
)
async def test_answers_400_for_a_wrong_envelope(gateway: Gateway, change: dict[str, Any], pointer: str, message: str | None):
    body = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada", "call": {"name": "search_hotels", "args": PARIS}} | change
    status, problem = await gateway.post("/v1/calls", json.dumps(body).encode())
    assert (status, problem["code"]) == (400, "ENVELOPE_INVALID")
    assert problem["errors"][0]["pointer"] == pointer
    assert message is None or problem["errors"][0]["message"] == message


async def test_refuses_bodies_that_are_too_large_compressed_or_of_another_type(gateway: Gateway):
    status, problem = await gateway.post("/v1/calls", b" " * (256 * 1024 + 1))
    assert (status, problem["code"]) == (413, "BODY_TOO_LARGE")
    status, problem = await gateway.post("/v1/calls", b"{}", headers={"Content-Type": "text/plain"})
    assert (status, problem["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    bomb = gzip.compress(bytes(50_000_000))
    status, problem = await gateway.post("/v1/calls", bomb, headers={"Content-Encoding": "gzip"})
    assert (status, problem["code"]) == (415, "UNSUPPORTED_ENCODING")


async def test_checks_the_context_against_the_workflow(gateway: Gateway):
    booking = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}
    answer = await gateway.call("book_hotel", booking, workflow="trip_booking", context={})
    assert answer["result"]["reason_code"] == "CONTEXT_INVALID"
    answer = await gateway.call("search_hotels", PARIS, context={"note": {"nested": "x"}})
    assert answer["result"]["reason_code"] == "CONTEXT_INVALID"


async def test_takes_an_integral_float_for_the_integer_it_is(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS | {"maxNightlyPriceUsd": 250.0})
    assert answer["result"]["status"] == "ok"
    (arrival,) = gateway.travel.arrivals
    assert arrival.endswith("max_price=250")
