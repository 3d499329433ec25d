"""The vendors' own clients, a model on loopback, and a whole gateway between them.

google-genai is installed for every test run in its newest version; `make vendors` runs these tests with its oldest supported
one, and with the clients of OpenAI, Anthropic and MCP, which are skipped elsewhere.
"""

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from google import genai
from google.genai import types

from gateway.client import CalledPastTheGateway, GatewayClient
from gateway.sync_client import SyncGatewayClient
from tests.acceptance.conftest import AGENT, Gateway
from tests.conftest import ROOT
from tests.fakes.vendors import Vendor, run_vendor

MODEL = "a-model"
PARIS = {"city": "Paris, France"}
ROME = {"city": "Rome, Italy"}
SIGNATURE = b"sig-\xfb\xff\xfe"
ENCRYPTED = "gAAAAAB-reasoning=="

THOUGHT = {"text": "**Comparing**", "thought": True}
GEMINI_CALLS: list[dict[str, Any]] = [
    {"functionCall": {"name": "search_hotels", "args": PARIS}, "thoughtSignature": base64.b64encode(SIGNATURE).decode()},
    {"functionCall": {"name": "search_hotels", "args": ROME}},
    {"functionCall": {"id": "fc-3", "name": "delete_everything"}},
]


def gemini_says(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}]}


@asynccontextmanager
async def google(vendor: Vendor) -> AsyncGenerator[genai.Client]:
    async with ClientSession() as session:
        options = types.HttpOptions(base_url=vendor.url, api_version="v1beta", timeout=20_000, aiohttp_client=session)
        with closing(genai.Client(api_key="x", http_options=options)) as client:
            yield client


def agent(gateway: Gateway) -> GatewayClient:
    return GatewayClient(gateway.url, AGENT, workflow="trip_planning", run_id="run-1", on_behalf_of="ada")


def statuses(parts: list[Any]) -> list[tuple[str | None, str]]:
    return [(part["functionResponse"].get("id"), part["functionResponse"]["response"]["status"]) for part in parts]


async def test_a_gemini_turn_goes_through_the_gateway_and_back_with_its_signature_byte_for_byte(gateway: Gateway):
    says = (gemini_says(THOUGHT, *GEMINI_CALLS), gemini_says({"text": "h1"}))
    async with run_vendor(*says) as vendor, google(vendor) as model, agent(gateway) as client:
        config = await client.gemini_config(temperature=0)
        models: Any = model.aio.models  # its signatures name types of libraries that are not installed
        response = await models.generate_content(model=MODEL, contents="Hotels?", config=config)
        before = response.model_dump()
        content = await client.answer_gemini(response)
        assert response.model_dump() == before
        assert isinstance(content, types.Content)
        history = [types.UserContent("Hotels?"), response.candidates[0].content, content]
        await models.generate_content(model=MODEL, contents=history, config=config)
    declared = vendor.bodies[0]["tools"][0]["functionDeclarations"]
    assert {"search_hotels", "get_itinerary"} <= {each["name"] for each in declared}
    _, model_turn, answering = vendor.bodies[1]["contents"]
    signatures = [part.get("thoughtSignature", "") for part in model_turn["parts"]]
    assert [base64.urlsafe_b64decode(each.replace("+", "-").replace("/", "_")) for each in signatures] == [b"", SIGNATURE, b"", b""]
    assert [part["functionCall"] for part in model_turn["parts"][1:]] == [part["functionCall"] for part in GEMINI_CALLS]
    assert answering["role"] == "user"
    assert statuses(answering["parts"]) == [(None, "ok"), (None, "ok"), ("fc-3", "blocked")]
    assert len(gateway.travel.arrivals) == 2


async def test_the_plain_client_does_the_same_without_an_event_loop(gateway: Gateway):
    def converse(url: str) -> None:
        options = types.HttpOptions(base_url=url, api_version="v1beta")
        with closing(genai.Client(api_key="x", http_options=options)) as model, SyncGatewayClient(agent(gateway)) as client:
            models: Any = model.models
            response = models.generate_content(model=MODEL, contents="Hotels?", config=client.gemini_config())
            content = client.answer_gemini(response)
            models.generate_content(model=MODEL, contents=["Hotels?", response.candidates[0].content, content])
            assert client.within(run_id="run-2").call("search_hotels", PARIS).result.status == "ok"

    async with run_vendor(gemini_says(*GEMINI_CALLS), gemini_says({"text": "h1"})) as vendor:
        await asyncio.to_thread(converse, vendor.url)
    assert statuses(vendor.bodies[1]["contents"][2]["parts"]) == [(None, "ok"), (None, "ok"), ("fc-3", "blocked")]


async def test_an_interaction_is_answered_with_the_next_ones_input(gateway: Gateway):
    steps = [
        {"type": "thought", "signature": "c2ln"},
        {"type": "function_call", "id": "c-1", "name": "search_hotels", "arguments": PARIS},
        {"type": "function_call", "id": "c-2", "name": "search_hotels", "arguments": {"town": "Lyon"}},
    ]
    first = {"id": "int-1", "model": MODEL, "status": "requires_action", "steps": steps, "object": "interaction"}
    last: dict[str, Any] = {"id": "int-2", "model": MODEL, "status": "completed", "steps": [], "object": "interaction"}
    async with run_vendor(first, last) as vendor, google(vendor) as model, agent(gateway) as client:
        interactions: Any = model.aio.interactions
        tools = await client.tools("gemini-interactions")
        interaction = await interactions.create(model=MODEL, input="Hotels?", tools=tools)
        answers = await client.answer_gemini(interaction)
        await interactions.create(model=MODEL, input=answers, previous_interaction_id=interaction.id, tools=tools)
    assert vendor.bodies[0]["tools"] == tools
    sent = vendor.bodies[1]["input"]
    assert sent == answers
    told = [(step["type"], step["call_id"], step["result"]["status"], step["is_error"]) for step in sent]
    assert told == [("function_result", "c-1", "ok", False), ("function_result", "c-2", "invalid_arguments", True)]


def search_hotels(city: str) -> str:
    """A function that would run in the agent's own process."""
    return city


async def test_functions_beside_the_gateways_tools_are_refused(gateway: Gateway):
    async with agent(gateway) as client:
        with pytest.raises(TypeError, match="Google's client would run it past the gateway"):
            await client.gemini_config(tools=[search_hotels])
        with pytest.raises(TypeError, match="stays switched off"):
            await client.gemini_config(automatic_function_calling={"disable": False})
        config = await client.gemini_config(tools=[types.Tool(google_search=types.GoogleSearch())])
    parsed = types.GenerateContentConfig.model_validate(config)
    assert parsed.automatic_function_calling == types.AutomaticFunctionCallingConfig(disable=True)


async def test_a_response_whose_calls_google_ran_itself_is_refused(gateway: Gateway):
    call = {"functionCall": {"name": "search_hotels", "args": PARIS}}
    async with run_vendor(gemini_says(call), gemini_says({"text": "Paris"})) as vendor, google(vendor) as model, agent(gateway) as client:
        models: Any = model.aio.models
        response = await models.generate_content(model=MODEL, contents="Hotels?", config={"tools": [search_hotels]})
        with pytest.raises(CalledPastTheGateway, match="gemini_config"):
            await client.answer_gemini(response)


def installed(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not in this environment; `make vendors` runs this")


RESPONSE_ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ENCRYPTED},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "search_hotels", "arguments": json.dumps(PARIS), "status": "completed",
     "caller": {"type": "program", "caller_id": "call_0"}},
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "search_hotels", "arguments": '{"city": ', "status": "completed"},
]  # fmt: skip


def response_says(response_id: str, *output: Any) -> dict[str, Any]:
    return {
        "id": response_id, "object": "response", "created_at": 1, "model": MODEL, "output": list(output), "status": "completed",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


async def test_openais_responses(gateway: Gateway):
    openai = installed("openai")
    async with run_vendor(response_says("r1", *RESPONSE_ITEMS), response_says("r2")) as vendor, agent(gateway) as client:
        tools = await client.tools("openai")
        async with openai.AsyncOpenAI(api_key="x", base_url=vendor.url + "/v1", max_retries=0) as model:
            response = await model.responses.create(model=MODEL, input="Hotels?", tools=tools)
            outputs = await client.answer_turn(response, "openai")
            await model.responses.create(model=MODEL, input=[*response.output, *outputs], tools=tools)
    fits(openai.types.responses.FunctionToolParam, tools)
    assert vendor.bodies[0]["tools"] == tools
    echoed, sent = vendor.bodies[1]["input"][:3], vendor.bodies[1]["input"][3:]
    assert [{name: item[name] for name in written} for item, written in zip(echoed, RESPONSE_ITEMS, strict=True)] == RESPONSE_ITEMS
    assert [(item["type"], item["call_id"], json.loads(item["output"])["status"], item.get("caller")) for item in sent] == [
        ("function_call_output", "call_1", "ok", {"type": "program", "caller_id": "call_0"}),
        ("function_call_output", "call_2", "invalid_arguments", None),
    ]


async def test_openais_chat(gateway: Gateway):
    openai = installed("openai")
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "search_hotels", "arguments": json.dumps(PARIS)}},
        {"id": "call_2", "type": "function", "function": {"name": "search_hotels", "arguments": "Rome"}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    says = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL}
    says["choices"] = [{"index": 0, "finish_reason": "tool_calls", "message": message}]  # pyright: ignore[reportArgumentType]
    async with run_vendor(says, says) as vendor, agent(gateway) as client:
        tools = await client.tools("openai-chat")
        async with openai.AsyncOpenAI(api_key="x", base_url=vendor.url + "/v1", max_retries=0) as model:
            completion = await model.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hotels?"}], tools=tools)
            messages = await client.answer_turn(completion, "openai-chat")
            history = [{"role": "user", "content": "Hotels?"}, completion.choices[0].message, *messages]
            await model.chat.completions.create(model=MODEL, messages=history, tools=tools)
    fits(openai.types.chat.ChatCompletionFunctionToolParam, tools)
    assert vendor.bodies[1]["messages"][1]["tool_calls"] == calls
    sent = [(each["role"], each["tool_call_id"], json.loads(each["content"])["status"]) for each in vendor.bodies[1]["messages"][2:]]
    assert sent == [("tool", "call_1", "ok"), ("tool", "call_2", "invalid_arguments")]


async def test_anthropics_messages(gateway: Gateway):
    anthropic = installed("anthropic")
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": base64.b64encode(SIGNATURE).decode()},
        {"type": "tool_use", "id": "toolu_1", "name": "search_hotels", "input": PARIS},
        {"type": "tool_use", "id": "toolu_2", "name": "delete_everything", "input": {}},
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    says = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": blocks, "stop_reason": "tool_use", "usage": usage}
    async with run_vendor(says, says) as vendor, agent(gateway) as client:
        tools = await client.tools("anthropic")
        question = {"role": "user", "content": "Hotels?"}
        async with anthropic.AsyncAnthropic(api_key="x", base_url=vendor.url, max_retries=0) as model:
            message = await model.messages.create(model=MODEL, max_tokens=100, messages=[question], tools=tools)
            answering = await client.answer_turn(message, "anthropic")
            history = [question, {"role": "assistant", "content": message.content}, answering]
            await model.messages.create(model=MODEL, max_tokens=100, messages=history, tools=tools)
    fits(anthropic.types.ToolParam, tools)
    echoed, sent = vendor.bodies[1]["messages"][1]["content"], vendor.bodies[1]["messages"][2]
    assert [{name: block[name] for name in written} for block, written in zip(echoed, blocks, strict=True)] == blocks
    assert sent["role"] == "user"
    told = [(block["type"], block["tool_use_id"], json.loads(block["content"])["status"], block["is_error"]) for block in sent["content"]]
    assert told == [("tool_result", "toolu_1", "ok", False), ("tool_result", "toolu_2", "blocked", True)]


async def test_the_types_of_mcp_take_the_listed_tools(gateway: Gateway):
    mcp_types = installed("mcp_types")
    async with agent(gateway) as client:
        tools = await client.tools("mcp")
    read = [mcp_types.Tool.model_validate(tool) for tool in tools]
    assert [tool.model_dump(by_alias=True, exclude_none=True) for tool in read] == tools


def fits(typed_dict: Any, tools: list[dict[str, Any]]) -> None:
    """Each declaration has every field that the SDK requires and none that it does not know."""
    assert tools
    for tool in tools:
        assert typed_dict.__required_keys__ <= tool.keys() <= typed_dict.__required_keys__ | typed_dict.__optional_keys__


async def run_program(number: int, gateway: Gateway, folder: Path, **environment: str) -> str:
    """What a program of docs/dialects.md prints when it is run as a file."""
    programs = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "dialects.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder / "program.py").write_text(programs[number].replace("http://127.0.0.1:8080", gateway.url))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(folder / "program.py"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ) | environment,
    )  # fmt: skip
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


async def test_the_program_for_gemini_in_the_page_runs_as_a_file(gateway: Gateway, tmp_path: Path):
    async with run_vendor(gemini_says(*GEMINI_CALLS), gemini_says({"text": "Hotel Lumière"})) as vendor:
        printed = await run_program(0, gateway, tmp_path, GOOGLE_GEMINI_BASE_URL=vendor.url, GEMINI_API_KEY="x")
    assert printed == "Hotel Lumière\n"
    assert statuses(vendor.bodies[1]["contents"][2]["parts"]) == [(None, "ok"), (None, "ok"), ("fc-3", "blocked")]


async def test_the_program_for_openai_in_the_page_runs_as_a_file(gateway: Gateway, tmp_path: Path):
    installed("openai")
    words: dict[str, Any] = {"type": "output_text", "text": "Hotel Lumière", "annotations": []}
    says: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [words]}
    async with run_vendor(response_says("r1", *RESPONSE_ITEMS), response_says("r2", says)) as vendor:
        printed = await run_program(1, gateway, tmp_path, OPENAI_BASE_URL=vendor.url, OPENAI_API_KEY="x")
    assert printed == "Hotel Lumière\n"
    assert [item["type"] for item in vendor.bodies[1]["input"][-2:]] == ["function_call_output", "function_call_output"]


async def test_the_turn_in_the_page_gets_the_answer_that_stands_below_it(gateway: Gateway):
    asked, shown = re.findall(r"^```json\n(.*?)^```", (ROOT / "docs" / "dialects.md").read_text(), re.MULTILINE | re.DOTALL)
    status, answer = await gateway.post("/v1/rounds?dialect=openai", json.loads(asked))
    assert (status, answer.keys()) == (200, json.loads(shown).keys())
    assert [json.loads(item.pop("output"))["status"] for item in answer["turn"]] == ["ok"]
    assert [item.pop("output") and item for item in json.loads(shown)["turn"]] == answer["turn"]
