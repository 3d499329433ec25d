import json
from typing import Any

import pytest

from gateway.dialects.gemini import read_turn, write_turn
from gateway.dialects.turn import TurnCall, TurnUnreadable
from gateway.domain.reasons import Effect
from gateway.domain.result import Answer, Blocked, CallName, DecisionView, InvalidArguments, Ok, PendingClient, Result, TemporaryError


def answer(result: Result, *, id: str | None = None, name: str | None = "search_hotels") -> Answer:  # noqa: A002 - the wire's word
    view = DecisionView(effect=Effect.ALLOW, reason_code="POLICY_ALLOWED", stage="decide")
    return Answer(decision_id="0199", call=CallName(id=id, name=name), decision=view, result=result)


def ok(data: Any) -> Ok:
    return Ok(reason_code="EXECUTION_SUCCEEDED", message="Done.", retry_same_input=False, data=data)


def response(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}]}


def test_reads_every_call_in_order_with_ids_only_where_the_model_gave_one():
    turn = response(
        {"text": "Let me look.", "thought": True},
        {"functionCall": {"id": "fc-1", "name": "search_hotels", "args": {"city": "Paris, France"}}, "thoughtSignature": "c2lnLTE="},
        {"functionCall": {"name": "search_hotels", "args": {"city": "Rome, Italy"}}},
        {"functionCall": {"name": "search_hotels", "args": {"city": "Rome, Italy"}}},
        {"text": "Then I book."},
        {"functionCall": {"id": "fc-1", "name": "get_itinerary"}},
    )
    calls = read_turn(turn)
    assert [call.as_wire() for call in calls] == [
        {"id": "fc-1", "name": "search_hotels", "args": {"city": "Paris, France"}},
        {"name": "search_hotels", "args": {"city": "Rome, Italy"}},
        {"name": "search_hotels", "args": {"city": "Rome, Italy"}},
        {"id": "fc-1", "name": "get_itinerary"},
    ]
    assert calls[0].pointer == "/candidates/0/content/parts/1/functionCall"


def test_thought_signatures_stay_out_of_calls():
    turn = response({"functionCall": {"name": "a", "args": {}, "thoughtSignature": "c2lnLTE="}, "thoughtSignature": "c2lnLTE="})
    assert "c2lnLTE=" not in str(read_turn(turn))


def test_reads_a_bare_content_and_the_spelling_of_python():
    turn = {"role": "model", "parts": [{"function_call": {"id": None, "name": "a", "args": {"x": 1}}, "thought_signature": None}]}
    place = "/parts/0/function_call"
    assert read_turn(turn) == [TurnCall(pointer=place, args_pointer=f"{place}/args", name="a", args={"x": 1})]


def test_passes_over_what_geminis_own_servers_ran():
    turn = response(
        {"toolCall": {"id": "s-1", "toolType": "GOOGLE_SEARCH"}}, {"executableCode": {"code": "1+1"}}, {"functionCall": {"name": "a"}}
    )
    assert [call.name for call in read_turn(turn)] == ["a"]


@pytest.mark.parametrize("args", [None, [1], "{}", 7, False])
def test_strange_arguments_are_handed_on_as_they_are(args: Any):
    assert read_turn(response({"functionCall": {"name": "a", "args": args}}))[0].args == args


@pytest.mark.parametrize("written", ["text", 7, [], {}, {"name": None, "id": None}, {"name": 7, "id": 7}, {"name": ["a"], "id": ""}])
def test_a_call_of_a_strange_shape_is_still_a_call(written: Any):
    place = "/candidates/0/content/parts/0/functionCall"
    assert read_turn(response({"functionCall": written})) == [TurnCall(pointer=place, args_pointer=f"{place}/args")]


@pytest.mark.parametrize(
    "turn",
    [
        response({"text": "No calls."}),
        response(),
        response(None, "text", 7),
        {"candidates": []},
        {"candidates": None},
        {"candidates": [{"finishReason": "SAFETY"}]},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"role": "model"}}]},
        {"role": "model", "parts": None},
    ],
)
def test_a_turn_may_hold_no_calls(turn: Any):
    assert read_turn(turn) == []


@pytest.mark.parametrize(
    "turn",
    [
        None,
        [],
        "turn",
        {},
        {"text": "hello"},
        {"candidates": {}},
        {"candidates": ["x"]},
        {"candidates": [{"content": "x"}]},
        {"parts": {}},
        response({"functionCall": {"name": "a", "willContinue": True}}),
        response({"functionCall": {"name": "a", "partialArgs": [{"jsonPath": "$.x", "stringValue": "y"}]}}),
    ],
)
def test_a_turn_of_another_shape_is_refused(turn: Any):
    with pytest.raises(TurnUnreadable):
        read_turn(turn)


def test_writes_one_user_content_with_one_response_per_call():
    calls = [TurnCall(pointer="/0", id="fc-1", name="search_hotels"), TurnCall(pointer="/1", name="no_such_tool"), TurnCall(pointer="/2")]
    answers = [
        answer(ok({"matches": [{"hotelId": "h1"}]}), id="fc-1"),
        answer(Blocked(reason_code="TOOL_UNKNOWN", message="There is no such tool.", retry_same_input=False), name="no_such_tool"),
        answer(TemporaryError(reason_code="OVERLOADED", message="Later.", retry_same_input=True, retry_after_ms=500), name=None),
    ]
    assert write_turn(calls, answers) == {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "fc-1",
                    "name": "search_hotels",
                    "response": {
                        "status": "ok",
                        "reason_code": "EXECUTION_SUCCEEDED",
                        "message": "Done.",
                        "retry_same_input": False,
                        "data": {"matches": [{"hotelId": "h1"}]},
                    },
                }
            },
            {
                "functionResponse": {
                    "name": "no_such_tool",
                    "response": {
                        "status": "blocked",
                        "reason_code": "TOOL_UNKNOWN",
                        "message": "There is no such tool.",
                        "retry_same_input": False,
                    },
                }
            },
            {
                "functionResponse": {
                    "name": "",
                    "response": {
                        "status": "temporary_error",
                        "reason_code": "OVERLOADED",
                        "message": "Later.",
                        "retry_same_input": True,
                        "retry_after_ms": 500,
                    },
                }
            },
        ],
    }


def test_errors_and_omitted_data_are_told():
    invalid = InvalidArguments.model_validate(
        {
            "reason_code": "ARGUMENTS_INVALID",
            "message": "Correct.",
            "retry_same_input": False,
            "errors": [{"path": "/city", "message": "is required"}],
        }
    )
    omitted = ok(None).model_copy(update={"data_omitted": "too_large"})
    parts = write_turn([TurnCall(pointer="", name="a")] * 2, [answer(invalid), answer(omitted)])["parts"]
    assert parts[0]["functionResponse"]["response"]["errors"] == [{"path": "/city", "message": "is required"}]
    assert (
        parts[1]["functionResponse"]["response"] | {"data": None, "data_omitted": "too_large"} == parts[1]["functionResponse"]["response"]
    )


@pytest.mark.parametrize("text", ['{"schema":{"$ref":"#/$defs/x"}}', '[{"deep":[{"$defs":{}}]}]'])
def test_data_with_references_is_delivered_as_text_and_stays_unchanged_itself(text: str):
    data = json.loads(text)
    original = ok(data)
    written = write_turn([TurnCall(pointer="", name="a")], [answer(original)])["parts"][0]["functionResponse"]["response"]["data"]
    assert written == text
    assert original.data == json.loads(text)


def test_arguments_for_a_client_are_guarded_too_and_ordinary_dollar_keys_are_not_touched():
    pending = PendingClient.model_validate(
        {
            "reason_code": "POLICY_ALLOWED",
            "message": "",
            "retry_same_input": False,
            "execution_id": "e",
            "expires_at": "2026-03-01T10:00:00Z",
            "kind": "screen",
            "args": {"$ref": 1},
        }
    )
    parts = write_turn([TurnCall(pointer="", name="a")] * 2, [answer(pending), answer(ok({"$amount": "$ref"}))])["parts"]
    assert parts[0]["functionResponse"]["response"]["args"] == '{"$ref":1}'
    assert parts[0]["functionResponse"]["response"]["expires_at"] == "2026-03-01T10:00:00Z"
    assert parts[1]["functionResponse"]["response"]["data"] == {"$amount": "$ref"}


def test_fewer_answers_than_calls_are_an_error():
    with pytest.raises(ValueError, match="2 calls need as many answers, not 1"):
        write_turn([TurnCall(pointer="")] * 2, [answer(ok(None))])
