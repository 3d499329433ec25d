"""The events of a run, as commands read them: one stream, taken up again where a connection breaks."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp

from gateway.cli.http import CommandFailed, ExitCode, GatewayHttp, path_segment

RECONNECTS = 30
"""Broken connections in a row, a second apart, before a command gives up."""
_ENDS = frozenset({"run.finished", "run.failed"})


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """One event of a run."""

    id: int
    type: str
    data: dict[str, Any]

    @property
    def is_end(self) -> bool:
        """Whether the run ended with it."""
        return self.type in _ENDS


async def start_run(gateway: GatewayHttp, body: Any, key: str) -> AsyncGenerator[RunEvent]:
    """The events of a new run until its end. `key` is its Idempotency-Key."""
    run_id, after = None, 0
    try:
        async with gateway.stream("POST", "/v1/runs", body=body, headers={"Idempotency-Key": key}) as response:
            async for event in _read(response):
                run_id, after = run_id or event.data.get("run_id"), event.id
                yield event
                if event.is_end:
                    return
    except CommandFailed as failed:
        if run_id is None or failed.exit_code != ExitCode.UNREACHABLE:
            raise
    if run_id is not None:
        async for event in follow_run(gateway, run_id, after=after):
            yield event


async def follow_run(
    gateway: GatewayHttp, run_id: str, *, after: int = 0, method: str = "GET", what: str = "events"
) -> AsyncGenerator[RunEvent]:
    """The events of a run after an id, until its end; `CommandFailed` where the gateway stays away."""
    tries = 0
    while True:
        try:
            path = f"/v1/runs/{path_segment(run_id)}/{what}"
            async with gateway.stream(method, path, headers={"Last-Event-ID": str(after)}) as response:
                method, what = "GET", "events"
                is_over = True
                async for event in _read(response):
                    after, tries, is_over = event.id, 0, event.is_end
                    yield event
                # A stream that ends without the run's end was cut by a gateway that stops.
                if is_over:
                    return
        except CommandFailed as failed:
            if failed.exit_code != ExitCode.UNREACHABLE or tries >= RECONNECTS:
                raise
        tries += 1
        await asyncio.sleep(1)


async def _read(response: aiohttp.ClientResponse) -> AsyncGenerator[RunEvent]:
    fields: dict[str, str] = {}
    async for line in response.content:
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield RunEvent(id=int(fields["id"]), type=fields["event"], data=json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}
