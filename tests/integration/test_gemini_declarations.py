"""Declarations and answering turns as Google's own client takes and sends them, against a server of our own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import Any, cast

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from google import genai
from google.genai import types

from gateway.dialects.gemini import declarations, read_turn, write_turn
from gateway.domain.catalogue import ToolDeclaration
from gateway.domain.reasons import Effect
from gateway.domain.result import Answer, CallName, DecisionView, Ok

MODEL = "gemini-3-pro"
BOOKING = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hotelId", "minutes"],
    "properties": {
        "hotelId": {"$ref": "#/$defs/id"},
        "minutes": {"type": "integer", "enum": [60, 1440]},
        "note": {"type": ["string", "null"], "maxLength": 200},
    },
    "$defs": {"id": {"type": "string", "pattern": r"\S"}},
}
TURN = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Looking.", "thought": True},
                    {
                        "functionCall": {"id": "fc-1", "name": "book_hotel", "args": {"hotelId": "h1", "minutes": 60.0}},
                        "thoughtSignature": "c2lnLTE=",
                    },
                    {"functionCall": {"name": "get_itinerary"}},
                ],
            },
            "finishReason": "STOP",
            "index": 0,
        }
    ],
    "usageMetadata": {"totalTokenCount": 12},
}


def tool(name: str, parameters: dict[str, Any]) -> ToolDeclaration:
    return ToolDeclaration.model_validate(
        {
            "name": name,
            "title": name,
            "description": f"Does {name}.",
            "risk": "read",
            "permissions": ["hotel:read"],
            "parameters": parameters,
            "execute": {"http": {"connection": "travel", "method": "GET", "path": "/"}},
        }
    )


TOOLS = [tool("book_hotel", BOOKING), tool("get_itinerary", {"type": "object", "additionalProperties": False})]


@asynccontextmanager
async def fake_gemini() -> AsyncGenerator[tuple[genai.Client, list[dict[str, Any]]]]:
    """A server that answers `TURN` to any generateContent, and a real client of it."""
    bodies: list[dict[str, Any]] = []

    async def generate(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response(TURN)

    app = web.Application()
    app.router.add_post(f"/v1beta/models/{MODEL}:generateContent", generate)
    # A session of our own: it believes no proxies of the environment, and the client's own one warns.
    async with TestServer(app) as server, ClientSession() as session:
        options = types.HttpOptions(base_url=str(server.make_url("/")), api_version="v1beta", timeout=5000, aiohttp_client=session)
        with closing(genai.Client(api_key="x", http_options=options)) as client:
            yield client, bodies


async def ask(client: genai.Client, contents: list[Any]) -> types.GenerateContentResponse:
    models: Any = client.aio.models  # its signature names types of a library that is not installed
    return await models.generate_content(model=MODEL, contents=contents, config={"tools": declarations(TOOLS)})


def test_the_types_of_googles_client_take_the_declarations_as_they_are():
    config = types.GenerateContentConfig.model_validate({"tools": declarations(TOOLS)})
    declared = cast("list[types.Tool]", config.tools)[0].function_declarations
    assert [(each.name, each.parameters_json_schema is None) for each in declared or []] == [("book_hotel", False), ("get_itinerary", True)]


def test_a_thousand_declarations_are_taken_too():
    config = types.GenerateContentConfig.model_validate({"tools": declarations(tool(f"t{number}", BOOKING) for number in range(1000))})
    assert sum(len(each.function_declarations or []) for each in cast("list[types.Tool]", config.tools)) == 1000


async def test_declarations_reach_the_server_without_references_and_integer_enums():
    async with fake_gemini() as (client, bodies):
        await ask(client, ["Book"])
    assert bodies[0]["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "book_hotel",
                    "description": "Does book_hotel.",
                    "parameters_json_schema": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["hotelId", "minutes"],
                        "properties": {
                            "hotelId": {"type": "string", "description": r"Matches the regular expression \S."},
                            "minutes": {"type": "integer", "description": "One of: 60, 1440."},
                            "note": {"type": ["string", "null"], "description": "At most 200 characters."},
                        },
                    },
                },
                {"name": "get_itinerary", "description": "Does get_itinerary."},
            ]
        }
    ]


async def test_a_round_goes_through_the_client_and_back_with_ids_only_where_they_were():
    async with fake_gemini() as (client, bodies):
        first = await ask(client, ["Book"])
        for written in (first.model_dump(mode="json", by_alias=True), first.model_dump(mode="json"), first.model_dump()):
            calls = read_turn(written)
            assert [call.as_wire() for call in calls] == [
                {"id": "fc-1", "name": "book_hotel", "args": {"hotelId": "h1", "minutes": 60.0}},
                {"name": "get_itinerary"},
            ]
        decision = DecisionView(effect=Effect.ALLOW, reason_code="POLICY_ALLOWED", stage="decide")
        result = Ok(reason_code="EXECUTION_SUCCEEDED", message="Done.", retry_same_input=False, data={"schema": {"$ref": "#/x"}})
        turn = write_turn(calls, [Answer(decision_id="d", call=CallName(), decision=decision, result=result)] * 2)
        model_content = cast("list[types.Candidate]", first.candidates)[0].content
        await ask(client, [types.UserContent("Book"), model_content, turn])
    response = {
        "status": "ok",
        "reason_code": "EXECUTION_SUCCEEDED",
        "message": "Done.",
        "retry_same_input": False,
        "data": '{"schema":{"$ref":"#/x"}}',
    }
    assert bodies[1]["contents"][2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "fc-1", "name": "book_hotel", "response": response}},
            {"functionResponse": {"name": "get_itinerary", "response": response}},
        ],
    }
