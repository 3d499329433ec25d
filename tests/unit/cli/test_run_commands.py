"""``gateway chat`` and ``gateway runs`` against a gateway that speaks the wire: what is shown, what is asked, how it ends."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from gateway.cli import gateway as command

CALL = {"turn": 0, "position": 0, "call": {"name": "search_hotels"}, "title": "Search hotels", "progress": "Searching hotels"}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("run.started", {"run_id": "r1", "workflow": "trip_planning", "model": "m"}),
    ("call.decided", CALL | {"effect": "allow", "reason_code": "POLICY_ALLOWED"}),
    ("call.finished", CALL | {"status": "ok", "reason_code": "EXECUTION_SUCCEEDED"}),
    ("approval.required", CALL | {"approval_id": "a1", "expires_at": "2026-12-01T10:00:00Z", "summary": "Book \x1b[2Ja hotel"}),
    ("answer", {"text": "Hotel Lumière\x1b[2J\nand that is all."}),
    ("run.finished", {"rounds": 1}),
]
FAILED: dict[str, Any] = {"reason_code": "MODEL_UNAVAILABLE", "message": "The model did not answer.", "is_resumable": True, "detail": "503"}


class Wire:
    """A gateway that streams events, and breaks its first stream off after so many of them."""

    def __init__(self, events: list[tuple[str, dict[str, Any]]], *, breaks_after: int | None = None) -> None:
        self.events = events
        self.breaks_after = breaks_after
        self.bodies: list[Any] = []
        self.seen: list[str] = []

    async def start(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        return await self._stream(request, 0, self.breaks_after)

    async def follow(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.headers["Last-Event-ID"])
        return await self._stream(request, int(request.headers["Last-Event-ID"]), None)

    async def show(self, request: web.Request) -> web.Response:
        if request.match_info["run_id"] != "r1":
            problem = {"code": "NOT_FOUND", "detail": "There is no such run of this agent."}
            return web.json_response(problem, status=404, content_type="application/problem+json")
        return web.json_response({"run_id": "r1", "state": "answered", "answer": "Done.", "model": None})

    async def _stream(self, request: web.Request, after: int, until: int | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": still here\n\n")
        for number, (type_, data) in enumerate(self.events[:until], start=1):
            if number > after:
                written = json.dumps(data | {"at": "2026-12-01T10:00:00Z"})
                await response.write(f"id: {number}\nevent: {type_}\ndata: {written}\n\n".encode())
        return response


@asynccontextmanager
async def _serving(wire: Wire) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_post("/v1/runs", wire.start)
    app.router.add_get("/v1/runs/{run_id}/events", wire.follow)
    app.router.add_get("/v1/runs/{run_id}", wire.show)
    app.router.add_post("/v1/runs/{run_id}/cancel", wire.show)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def _run(url: str, *args: str) -> Result:
    import asyncio  # noqa: PLC0415 - only to leave the loop to the server

    return await asyncio.to_thread(CliRunner().invoke, command, [*args, "--url", url, "--key", "dev-agent-key"])


async def test_chat_prints_the_answer_and_tells_progress_apart():
    wire = Wire(EVENTS)
    async with _serving(wire) as url:
        result = await _run(url, "chat", "Find hotels", "--workflow", "trip_planning", "--context", "requestVersion=1")
    assert (result.exit_code, result.stdout) == (0, "Hotel Lumière\\u001b[2J\nand that is all.\n")
    assert "  Searching hotels …\n  Search hotels: ok\n  Book \\u001b[2Ja hotel needs a person" in result.stderr
    expected = {
        "workflow": "trip_planning",
        "on_behalf_of": "ada",
        "prompt": "Find hotels",
        "model": None,
        "context": {"requestVersion": "1"},
    }
    assert wire.bodies == [expected]


async def test_chat_goes_on_where_a_stream_was_cut_off():
    wire = Wire(EVENTS, breaks_after=2)
    async with _serving(wire) as url:
        result = await _run(url, "chat", "Find hotels", "--workflow", "trip_planning", "-o", "ndjson")
    assert result.exit_code == 0
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [1, 2, 3, 4, 5, 6]
    assert wire.seen == ["2"]


async def test_chat_says_why_a_run_failed():
    async with _serving(Wire([EVENTS[0], ("run.failed", FAILED)])) as url:
        result = await _run(url, "chat", "Find hotels", "--workflow", "trip_planning")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "MODEL_UNAVAILABLE (503): The model did not answer." in result.stderr
    assert "runs resume r1" in result.stderr


@pytest.mark.parametrize("context", ["nothing", "=x"])
async def test_chat_refuses_context_that_is_none(context: str):
    async with _serving(Wire(EVENTS)) as url:
        assert (await _run(url, "chat", "x", "--workflow", "w", "--context", context)).exit_code == 2


async def test_runs_show_events_and_cancel():
    async with _serving(Wire(EVENTS)) as url:
        shown = await _run(url, "runs", "show", "r1")
        assert (shown.exit_code, shown.stdout) == (0, "run_id         r1\nstate          answered\n\nDone.\n")
        assert (await _run(url, "runs", "cancel", "r1")).exit_code == 0
        missing = await _run(url, "runs", "show", "r2")
        assert (missing.exit_code, missing.stderr) == (8, "gateway: NOT_FOUND: There is no such run of this agent.\n")
        events = await _run(url, "runs", "events", "r1", "--after", "4", "-o", "ndjson")
        assert [json.loads(line)["type"] for line in events.stdout.splitlines()] == ["answer", "run.finished"]
