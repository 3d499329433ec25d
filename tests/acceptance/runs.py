"""Reading the event streams of runs in tests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.acceptance.conftest import AGENT, Gateway


@dataclass
class Stream:
    """An open stream of events, read as it comes."""

    response: aiohttp.ClientResponse
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_over: bool = False

    async def read(self, until: Callable[[dict[str, Any]], bool] | str | None = None, *, seconds: float = 30) -> list[dict[str, Any]]:
        """Read on until an event (by type or test) has come, or the stream ends; all events so far."""

        def is_wanted(event: dict[str, Any]) -> bool:
            return until(event) if callable(until) else event["type"] == until

        async with asyncio.timeout(seconds):
            while not self.is_over:
                event = await self._next()
                if event is None:
                    self.is_over = True
                elif event:
                    self.events.append(event)
                    if is_wanted(event):
                        break
        return self.events

    async def _next(self) -> dict[str, Any] | None:
        fields: dict[str, Any] = {}
        while line := await self.response.content.readline():
            if line == b"\n":
                return {"id": int(fields["id"]), "type": fields["event"], **json.loads(fields["data"])} if fields else {}
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
        return None


def run_body(prompt: str = "Find hotels in Paris", **fields: Any) -> dict[str, Any]:
    """The body that starts a run."""
    workflow = fields.get("workflow", "trip_planning")
    context = {"requestVersion": "1"} if workflow == "trip_booking" else {}
    return {"workflow": workflow, "on_behalf_of": "ada", "prompt": prompt, "context": context} | fields


@asynccontextmanager
async def stream(gateway: Gateway, method: str, path: str, body: Any = None, *, key: str = AGENT, **headers: str) -> AsyncGenerator[Stream]:
    """An open stream; it must be a 200."""
    sent = {"Authorization": f"Bearer {key}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with gateway.session.request(method, gateway.url + path, json=body, headers=sent) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Stream(response)


async def run_to_end(gateway: Gateway, *, prompt: str = "Find hotels in Paris", **fields: Any) -> list[dict[str, Any]]:
    """All events of a new run."""
    async with stream(gateway, "POST", "/v1/runs", run_body(prompt, **fields)) as opened:
        return await opened.read()


def types(events: list[dict[str, Any]]) -> list[str]:
    """The types of events, in order."""
    return [event["type"] for event in events]


def of_type(events: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    """The events of a type."""
    return [event for event in events if event["type"] == type_]
