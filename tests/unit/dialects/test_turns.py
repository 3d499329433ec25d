"""Every dialect by one measure: all calls of a turn, in order, ids only where they were; one answer each; the turn untouched."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.dialects.turn import TurnCall, TurnUnreadable
from gateway.domain.reasons import Effect
from gateway.domain.result import Answer, Blocked, CallName, DecisionView, Ok, Result, Suppressed

SIGNATURE = "c2lnLTE="


def answer(result: Result) -> Answer:
    view = DecisionView(effect=Effect.ALLOW, reason_code="POLICY_ALLOWED", stage="decide")
    return Answer(decision_id="0199", call=CallName(), decision=view, result=result)


def ok(data: Any = None) -> Answer:
    return answer(Ok(reason_code="EXECUTION_SUCCEEDED", message="Done.", retry_same_input=False, data=data))


def blocked() -> Answer:
    return answer(Blocked(reason_code="TOOL_UNKNOWN", message="No such tool.", retry_same_input=False))


@dataclass(frozen=True, kw_only=True)
class Form:
    """One shape of turn: how a call and what is passed over look in it, how they make a turn, and where answers stand."""

    dialect: str
    call: Callable[[dict[str, Any]], Any]
    """From ``{id?, name?, args?}``, each of any type."""
    others: tuple[Any, ...]
    turn: Callable[[list[Any]], Any]
    answers: Callable[[Any], list[Any]]
    id_of: Callable[[Any], Any]


def renamed(fields: dict[str, Any], names: dict[str, str], *, is_text: bool = False) -> dict[str, Any]:
    return {names.get(name, name): text_of(value) if is_text and name == "args" else value for name, value in fields.items()}


def text_of(args: Any) -> Any:
    return json.dumps(args) if isinstance(args, dict | list) else args


def gemini_call(fields: dict[str, Any]) -> Any:
    return {"functionCall": fields, "thoughtSignature": SIGNATURE}


def content(parts: list[Any]) -> Any:
    return {"role": "model", "parts": parts}


def gemini_id(part: Any) -> Any:
    return part["functionResponse"].get("id")


def parts_of(turn: Any) -> list[Any]:
    assert turn["role"] == "user"
    return turn["parts"]


GEMINI_OTHERS: tuple[Any, ...] = (
    {"text": "**Thinking**", "thought": True, "thoughtSignature": SIGNATURE},
    {"toolCall": {"id": "s-1", "toolType": "GOOGLE_SEARCH", "args": {"query": "x"}}},
    {"toolResponse": {"id": "s-1", "response": {}}},
    {"executableCode": {"code": "1+1"}},
)
OPENAI_OTHERS: tuple[Any, ...] = (
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "message", "role": "assistant", "content": []},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c_9", "name": "x", "input": "free text"},
    {"type": "mcp_call", "id": "mcp_1", "name": "x", "arguments": "{}"},
)
ANTHROPIC_OTHERS: tuple[Any, ...] = (
    {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
    {"type": "text", "text": "Let me look."},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "input": {}},
)
STEP_OTHERS: tuple[Any, ...] = (
    {"type": "user_input", "content": []},
    {"type": "thought", "signature": SIGNATURE},
    {"type": "google_search_call", "id": "g-1", "arguments": {"queries": ["x"]}},
    {"type": "mcp_server_tool_call", "id": "m-1", "name": "x", "arguments": {}},
    {"type": "model_output", "content": []},
)

FORMS = {
    "gemini response": Form(
        dialect="gemini",
        call=gemini_call,
        others=GEMINI_OTHERS,
        turn=lambda parts: {"candidates": [{"content": content(parts), "finishReason": "STOP"}], "usageMetadata": {"totalTokenCount": 9}},
        answers=parts_of,
        id_of=gemini_id,
    ),
    "gemini content": Form(
        dialect="gemini",
        call=lambda fields: {"function_call": fields, "thought_signature": SIGNATURE},
        others=GEMINI_OTHERS,
        turn=content,
        answers=parts_of,
        id_of=gemini_id,
    ),
    "gemini interaction": Form(
        dialect="gemini",
        call=lambda fields: {"type": "function_call"} | renamed(fields, {"args": "arguments"}),
        others=STEP_OTHERS,
        turn=lambda steps: {"id": "int-1", "status": "requires_action", "steps": steps},
        answers=lambda steps: steps,
        id_of=lambda step: step.get("call_id"),
    ),
    "openai response": Form(
        dialect="openai",
        call=lambda fields: (
            {"type": "function_call", "id": "fc_1", "status": "completed", "caller": {"type": "direct"}, "async": False}
            | renamed(fields, {"args": "arguments", "id": "call_id"}, is_text=True)
        ),
        others=OPENAI_OTHERS,
        turn=lambda output: {"id": "resp_1", "object": "response", "output": output},
        answers=lambda items: items,
        id_of=lambda item: item.get("call_id"),
    ),
    "openai items": Form(
        dialect="openai",
        call=lambda fields: {"type": "function_call"} | renamed(fields, {"args": "arguments", "id": "call_id"}, is_text=True),
        others=OPENAI_OTHERS,
        turn=lambda output: output,
        answers=lambda items: items,
        id_of=lambda item: item.get("call_id"),
    ),
    "openai completion": Form(
        dialect="openai-chat",
        call=lambda fields: (
            {name: value for name, value in fields.items() if name == "id"}
            | {"type": "function", "function": renamed({n: v for n, v in fields.items() if n != "id"}, {"args": "arguments"}, is_text=True)}
        ),
        others=({"type": "custom", "id": "c_9", "custom": {"name": "x", "input": "free text"}},),
        turn=lambda calls: {
            "choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]
        },
        answers=lambda messages: messages,
        id_of=lambda message: message.get("tool_call_id"),
    ),
    "anthropic message": Form(
        dialect="anthropic",
        call=lambda fields: {"type": "tool_use", "caller": {"type": "direct"}} | renamed(fields, {"args": "input"}),
        others=ANTHROPIC_OTHERS,
        turn=lambda blocks: {"role": "assistant", "content": blocks, "stop_reason": "tool_use"},
        answers=lambda message: message["content"],
        id_of=lambda block: block.get("tool_use_id"),
    ),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["c-1", "c-2", "c-2", "", "x" * 2000]) | JSON,
        "name": st.sampled_from(["search_hotels", "search_hotels", "no_such_tool", ""]) | JSON,
        "args": JSON | st.just('{"broken": '),
    },
)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=40)
@given(data=st.data())
def test_n_calls_in_are_n_answers_out_with_ids_where_they_were_and_the_turn_untouched(name: str, data: st.DataObject):
    form = FORMS[name]
    written = data.draw(
        st.lists(CALLS.map(lambda fields: (True, fields)) | st.sampled_from(form.others).map(lambda x: (False, x)), max_size=6)
    )
    fields = [entry for is_call, entry in written if is_call]
    turn = form.turn([form.call(entry) if is_call else entry for is_call, entry in written])
    before = deepcopy(turn)
    read = DIALECTS[form.dialect](turn)
    ids = [entry["id"] if isinstance(entry.get("id"), str) and entry["id"] else None for entry in fields]
    assert [call.id for call in read.calls] == ids
    assert [call.name for call in read.calls] == [entry["name"] if isinstance(entry.get("name"), str) else None for entry in fields]
    answering = read.answer([ok({"n": n}) for n in range(len(fields))])
    assert turn == before
    if not fields:
        assert answering is None
        return
    answers = form.answers(answering)
    assert [form.id_of(each) for each in answers] == ids
    assert [json.dumps(each).count('"n": ') + json.dumps(each).count('\\"n\\":') for each in answers] == [1] * len(fields)
    assert all(f'"n": {n}' in json.dumps(each) or f'\\"n\\":{n}' in json.dumps(each) for n, each in enumerate(answers))
    for call in read.calls:
        wire = call.as_wire()
        json.dumps(wire, allow_nan=False)
        assert len(wire.get("id", "")) <= 512


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=40)
@given(
    turn=JSON
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("candidates", "parts", "steps", "output", "choices", "content", "tool_calls", "role"), JSON)
    )
)
def test_any_json_is_read_or_called_unreadable(name: str, turn: Any):
    try:
        read = DIALECTS[FORMS[name].dialect](turn)
    except TurnUnreadable:
        return
    read.answer([ok()] * len(read.calls))


@pytest.mark.parametrize("name", FORMS)
def test_answers_that_are_too_few_are_refused(name: str):
    form = FORMS[name]
    read = DIALECTS[form.dialect](form.turn([form.call({"id": "a", "name": "x"}), form.call({"id": "b", "name": "x"})]))
    with pytest.raises(ValueError, match="2 calls need as many answers, not 1"):
        read.answer([ok()])


def test_the_answers_of_each_dialect_stand_as_its_vendor_wants_them():
    message = json.dumps({"status": "ok", "reason_code": "EXECUTION_SUCCEEDED", "message": "Done.", "retry_same_input": False, "data": {"é": 1}},
                         ensure_ascii=False, separators=(",", ":"))  # fmt: skip
    refusal = '{"status":"blocked","reason_code":"TOOL_UNKNOWN","message":"No such tool.","retry_same_input":false}'
    answers = [ok({"é": 1}), blocked()]
    calls: list[dict[str, Any]] = [{"id": "c-1", "name": "a"}, {"id": "c-2", "name": "b"}]

    def answered(name: str) -> Any:
        form = FORMS[name]
        return DIALECTS[form.dialect](form.turn([form.call(call) for call in calls])).answer(answers)

    assert answered("openai response") == [
        {"type": "function_call_output", "call_id": "c-1", "caller": {"type": "direct"}, "output": message},
        {"type": "function_call_output", "call_id": "c-2", "caller": {"type": "direct"}, "output": refusal},
    ]
    assert answered("openai completion") == [
        {"role": "tool", "tool_call_id": "c-1", "content": message},
        {"role": "tool", "tool_call_id": "c-2", "content": refusal},
    ]
    assert answered("anthropic message") == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c-1", "content": message, "is_error": False},
            {"type": "tool_result", "tool_use_id": "c-2", "content": refusal, "is_error": True},
        ],
    }
    assert answered("gemini interaction") == [
        {"type": "function_result", "call_id": "c-1", "name": "a", "result": json.loads(message), "is_error": False},
        {"type": "function_result", "call_id": "c-2", "name": "b", "result": json.loads(refusal), "is_error": True},
    ]


def test_what_is_no_error_is_not_marked_as_one():
    block: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "x", "input": {}, "toolset_name": "t"}
    read = DIALECTS["anthropic"]([block])
    quiet = answer(Suppressed(reason_code="SUPPRESSED_QUIET_HOURS", message="Not now.", retry_same_input=False))
    told = read.answer([quiet])["content"][0]
    assert (told["is_error"], told["toolset_name"]) == (False, "t")


CUT_OFF: list[tuple[str, Any]] = [
    ("openai", [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}", "status": "incomplete"}]),
    (
        "openai-chat",
        {"choices": [{"message": {"tool_calls": [{"id": "a", "function": {"name": "x", "arguments": ""}}]}, "finish_reason": "length"}]},
    ),
    (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}], "stop_reason": "max_tokens"},
    ),
]


@pytest.mark.parametrize(("dialect", "turn"), CUT_OFF)
def test_a_call_that_the_model_could_not_finish_never_looks_like_one_without_arguments(dialect: str, turn: Any):
    (call,) = DIALECTS[dialect](turn).calls
    assert call.is_cut_off
    assert isinstance(call.as_wire()["args"], str)


UNREADABLE: list[tuple[str, Any]] = [
    ("openai", [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "", "status": "in_progress"}]),
    ("openai", {"output": {}}),
    ("openai", {"id": "resp_1"}),
    ("openai-chat", {"role": "user", "content": "hello"}),
    ("openai-chat", {"choices": {}}),
    ("openai-chat", {"choices": [{}]}),
    ("openai-chat", {"role": "assistant", "tool_calls": {}}),
    ("anthropic", {"role": "user", "content": []}),
    ("anthropic", {"role": "assistant", "content": 7}),
    ("anthropic", {}),
    ("gemini", {"steps": 7}),
]


@pytest.mark.parametrize(("dialect", "turn"), UNREADABLE)
def test_a_turn_of_another_shape_is_unreadable(dialect: str, turn: Any):
    with pytest.raises(TurnUnreadable):
        DIALECTS[dialect](turn)


WITHOUT_CALLS: list[tuple[str, Any]] = [
    ("openai", {"output": None}),
    ("openai-chat", {"choices": []}),
    ("openai-chat", {"role": "assistant", "content": "Hello.", "tool_calls": None}),
    ("anthropic", {"role": "assistant", "content": "Hello."}),
    ("gemini", {"steps": None}),
    ("gemini", []),
]


@pytest.mark.parametrize(("dialect", "turn"), WITHOUT_CALLS)
def test_a_turn_without_calls_needs_no_answer(dialect: str, turn: Any):
    read = DIALECTS[dialect](turn)
    assert (read.calls, read.answer([])) == ((), None)


def test_calls_that_have_their_answer_beside_them_are_passed_over():
    steps: list[Any] = [
        {"type": "function_call", "id": "a", "name": "x", "arguments": {}},
        {"type": "function_result", "call_id": "a", "result": "1"},
        {"type": "function_result", "call_id": ["odd"], "result": "1"},
        {"type": "function_call", "id": "b", "name": "x", "arguments": {}},
        {"type": "function_call", "name": "x", "arguments": {}},
    ]
    assert [call.id for call in DIALECTS["gemini"]({"steps": steps}).calls] == ["b", None]


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', "{", "[" * 100_000, "9" * 5000, "not json", '{"a": "\\ud83d"}']
)
def test_arguments_of_odd_text_go_over_the_wire_without_being_changed_into_others(text: str):
    wire = TurnCall(pointer="", name="x", args_text=text).as_wire()
    assert wire["args"] in (text, {"a": "\ud83d"})
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire


def test_long_ids_stay_different_and_equal_ones_equal():
    first, second = (TurnCall(pointer="", id="x" * 1000 + end) for end in "ab")
    assert first.wire_id != second.wire_id
    assert first.wire_id == TurnCall(pointer="/9", id="x" * 1000 + "a").wire_id
    assert TurnCall(pointer="", id="y" * 512).wire_id == "y" * 512
