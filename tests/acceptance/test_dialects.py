"""Native turns of models' vendors on /v1/rounds, and declarations in every format on /v1/tools, on a whole gateway."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS, FORMATS
from tests.acceptance.conftest import Gateway, new_key

PARIS = {"city": "Paris, France"}
SETTING = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada"}
SIGNATURE = "c2lnLTEtbm90LXJlYWw="


async def send(gateway: Gateway, dialect: str, turn: Any, headers: dict[str, str] | None = None, **more: Any) -> Any:
    status, answer = await gateway.post(f"/v1/rounds?dialect={dialect}", SETTING | {"turn": turn} | more, headers=headers)
    assert status == 200, answer
    return answer


async def test_a_parallel_group_of_gemini_is_answered_in_order_and_its_signature_goes_nowhere(gateway: Gateway):
    parts = [
        {"functionCall": {"name": "search_hotels", "args": PARIS}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"name": "search_hotels", "args": {"city": "Rome, Italy"}}},
        {"functionCall": {"id": "fc-3", "name": "search_hotels", "args": {"town": "Lyon"}}},
    ]
    answer = await send(gateway, "gemini", {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
    responses = [part["functionResponse"] for part in answer["turn"]["parts"]]
    assert [response.get("id") for response in responses] == [None, None, "fc-3"]
    assert [response["response"]["status"] for response in responses] == ["ok", "ok", "invalid_arguments"]
    assert [response["response"] for response in responses] == [result["result"] for result in answer["results"]]
    assert responses[0]["response"]["data"] != responses[1]["response"]["data"]
    for result in answer["results"]:
        assert SIGNATURE not in json.dumps(await gateway.decision(result["decision_id"]))


async def test_another_signature_under_the_same_key_is_the_same_call(gateway: Gateway):
    key = {"Idempotency-Key": new_key()}
    turns = [
        {"role": "model", "parts": [{"functionCall": {"name": "search_hotels", "args": PARIS}, "thoughtSignature": signature}]}
        for signature in ("c2lnLTE=", "c2lnLTI=")
    ]
    first, second = [await send(gateway, "gemini", turn, key) for turn in turns]
    assert first["turn"] == second["turn"]
    assert [found["results"][0]["replayed"] for found in (first, second)] == [False, True]
    assert len(gateway.travel.arrivals) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"city": "Paris', "not valid JSON: text without an end"),
        ('{"city": "Paris, France", "city": "Rome, Italy"}', "not valid JSON: "),
        ('{"city": "Paris, France", "maxNightlyPriceUsd": NaN}', "not valid JSON: "),
        ('{"city": "Paris, France", "maxNightlyPriceUsd": 1e999}', "number out of range"),
        ('{"city": "\\ud83d"}', "text contains a lone surrogate"),
        ('{"city": "a\\u0000"}', "text contains U+0000"),
        ("[" * 20_000, "not valid JSON: "),
        ('["Paris, France"]', "must be an object"),
    ],
)
async def test_arguments_that_are_no_json_object_are_told_to_the_model_and_run_nowhere(gateway: Gateway, text: str, said: str):
    item = {"type": "function_call", "call_id": "call_1", "name": "search_hotels", "arguments": text}
    answer = await send(gateway, "openai", [item])
    result = answer["results"][0]["result"]
    assert (result["status"], result["reason_code"]) == ("invalid_arguments", "ARGUMENTS_INVALID")
    assert result["errors"][0]["message"].startswith(said)
    assert json.loads(answer["turn"][0]["output"])["errors"] == result["errors"]
    assert (await gateway.decision(answer["results"][0]["decision_id"]))["record"]["status"] == "invalid_arguments"
    assert gateway.travel.arrivals == []


async def test_chat_and_messages_are_answered_as_their_vendors_want_it(gateway: Gateway):
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "search_hotels", "arguments": json.dumps(PARIS)}},
        {"id": "call_2", "type": "function", "function": {"name": "delete_everything", "arguments": ""}},
    ]
    chat = await send(gateway, "openai-chat", {"role": "assistant", "content": None, "tool_calls": calls})
    assert [(message["role"], message["tool_call_id"]) for message in chat["turn"]] == [("tool", "call_1"), ("tool", "call_2")]
    assert [json.loads(message["content"])["status"] for message in chat["turn"]] == ["ok", "blocked"]
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "hotels"}},
        {"type": "tool_use", "id": "toolu_1", "name": "search_hotels", "input": PARIS},
        {"type": "tool_use", "id": "toolu_2", "name": "book_hotel", "input": {}},
    ]
    message = await send(gateway, "anthropic", {"role": "assistant", "content": blocks, "stop_reason": "tool_use"})
    told = [(block["tool_use_id"], json.loads(block["content"])["status"], block["is_error"]) for block in message["turn"]["content"]]
    assert told == [("toolu_1", "ok", False), ("toolu_2", "blocked", True)]


async def test_a_call_that_was_cut_off_does_not_run_with_what_there_is_of_it(gateway: Gateway):
    turn = {"content": [{"type": "tool_use", "id": "t1", "name": "search_hotels", "input": PARIS}], "stop_reason": "max_tokens"}
    result = (await send(gateway, "anthropic", turn))["results"][0]["result"]
    assert (result["status"], result["errors"][0]["path"]) == ("invalid_arguments", "")
    assert gateway.travel.arrivals == []


async def test_all_of_eighty_calls_are_answered_and_sixty_four_may_run(gateway: Gateway):
    parts = [{"functionCall": {"name": "search_hotels", "args": PARIS}} for _ in range(80)]
    answer = await send(gateway, "gemini", {"parts": parts})
    codes = [result["result"]["reason_code"] for result in answer["results"]]
    assert (len(codes), len(answer["turn"]["parts"])) == (80, 80)
    assert codes[64:] == ["CONCURRENCY_LIMITED"] * 16
    assert "CONCURRENCY_LIMITED" not in codes[:64]
    assert all(result["decision_id"] for result in answer["results"])
    status, problem = await gateway.post("/v1/rounds?dialect=gemini", SETTING | {"turn": {"parts": [{"functionCall": {}}] * 513}})
    assert (status, problem["code"]) == (413, "TURN_TOO_LARGE")


async def test_an_id_with_a_whole_signature_in_it_comes_back_as_it_was(gateway: Gateway):
    long = "call_1__thought__" + "c2ln" * 800
    items = [{"type": "function_call", "call_id": long, "name": "search_hotels", "arguments": json.dumps(PARIS)}] * 2
    answer = await send(gateway, "openai", items)
    assert [item["call_id"] for item in answer["turn"]] == [long, long]
    assert [result["call"]["id"] for result in answer["results"]] == [long, long]
    assert len(gateway.travel.arrivals) == 1  # one id is one call


async def test_a_turn_without_calls_has_no_answering_turn(gateway: Gateway):
    assert await send(gateway, "openai", {"output": [{"type": "message", "content": []}]}) == {"results": [], "turn": None}


@pytest.mark.parametrize(
    ("path", "more", "code", "pointer"),
    [
        ("?dialect=mistral", {}, "PARAMETER_INVALID", None),
        ("?dialect=openai", {}, "TURN_UNREADABLE", "/turn"),
        ("?dialect=gemini", {"calls": []}, "ENVELOPE_INVALID", "/calls"),
        ("?dialect=gemini", {"approval_ids": [None, None]}, "ENVELOPE_INVALID", "/approval_ids"),
        ("", {}, "ENVELOPE_INVALID", "/calls"),
    ],
)
async def test_mistakes_of_the_agent_service_are_problems(gateway: Gateway, path: str, more: Any, code: str, pointer: str | None):
    status, problem = await gateway.post(f"/v1/rounds{path}", SETTING | {"turn": {"parts": [{"functionCall": {"name": "a"}}]}} | more)
    assert (status, problem["code"]) == (400, code)
    assert pointer is None or pointer in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize("name", FORMATS)
async def test_every_format_declares_the_same_tools(gateway: Gateway, name: str):
    status, answer = await gateway.get("/v1/tools", workflow="trip_planning", on_behalf_of="ada", format=name)
    assert status == 200
    declared = answer["tools"][0]["function_declarations"] if name == "gemini" else answer["tools"]
    names = [each["function"]["name"] if name == "openai-chat" else each["name"] for each in declared]
    assert {"search_hotels", "get_itinerary"} <= set(names)


ARGS: Any = st.sampled_from(
    [None, {}, PARIS, {"city": 7}, "{", '{"city": "Paris, France"}', "", 7, [1], {"city": "\ud83d"}, {"x" * 2000: 10**400}, "\0"]
)
CALLS = st.fixed_dictionaries({}, optional={
    "id": st.sampled_from(["a", "a", "b", "", 7, None, "\ud83d", "x" * 3000, ["a"]]),
    "name": st.sampled_from(["search_hotels", "no_such", "", None, 7, {"a": 1}, "\0", "x" * 5000]),
    "args": ARGS, "arguments": ARGS, "input": ARGS,
})  # fmt: skip


def write_gemini(calls: list[Any]) -> Any:
    return {"parts": [{"functionCall": call} for call in calls]}


def write_openai(calls: list[Any]) -> Any:
    return [{"type": "function_call", "call_id": call.get("id")} | call for call in calls]


def write_chat(calls: list[Any]) -> Any:
    return {"role": "assistant", "tool_calls": [{"id": call.get("id"), "type": "function", "function": call} for call in calls]}


def write_anthropic(calls: list[Any]) -> Any:
    return {"content": [{"type": "tool_use"} | call for call in calls]}


TURNS = {"gemini": write_gemini, "openai": write_openai, "openai-chat": write_chat, "anthropic": write_anthropic}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_no_turn_that_a_model_wrote_is_ever_an_http_error(gateway: Gateway, dialect: str):
    drawn: list[Any] = []

    @settings(max_examples=15, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.lists(CALLS, min_size=1, max_size=5))
    def draw(calls: list[Any]) -> None:
        drawn.append(calls)

    draw()
    for calls in drawn:
        answer = await send(gateway, dialect, TURNS[dialect](calls))
        assert len(answer["results"]) == len(calls)
        entries: Any = answer["turn"] if isinstance(answer["turn"], list) else next(iter(x for x in answer["turn"].values() if x != "user"))
        assert len(entries) == len(calls)
