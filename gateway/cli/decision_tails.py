"""``gateway decisions tail``: records as they arrive; where the connection breaks, it goes on with the next one."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import click

from gateway.cli.decision_searches import TAKES_QUERY, searches
from gateway.cli.http import CommandFailed, ExitCode, GatewayHttp, Params, speaks_to_gateway
from gateway.cli.terminal import printable, to_json

RETRY_S = 1.0
_COLUMNS = (("at", 27), ("kind", 10), ("agent", 18), ("subject", 10), ("tool", 20), ("effect", 8), ("reason_code", 31), ("status", 0))


@dataclass(kw_only=True)
class _Place:
    """How far the tail has come."""

    last_id: str | None = None
    shown: int = 0


@click.command("tail", context_settings=TAKES_QUERY)
@searches
@click.option("--from-position", type=click.IntRange(0), help="From this position on, otherwise from now on.")
@click.option("--count", type=click.IntRange(1), help="End after so many records.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "ndjson"]), default="table", show_default=True)
@speaks_to_gateway
def tail_decisions(*, gateway: GatewayHttp, form: str, from_position: int | None, count: int | None, search: Params) -> None:
    """Show records as they arrive, without gaps, until Ctrl-C."""
    place = _Place()
    try:
        asyncio.run(_tail(gateway, {**search, "from_position": from_position}, place, form, count))
    except KeyboardInterrupt:
        if place.last_id is not None:
            click.echo(f"Go on with: --from-position {int(place.last_id) + 1}", err=True)


async def _tail(gateway: GatewayHttp, params: Params, place: _Place, form: str, count: int | None) -> None:
    was_open = False
    while True:
        headers = {} if place.last_id is None else {"Last-Event-ID": place.last_id}
        try:
            async with gateway.stream("GET", "/v1/decisions/tail", params=params, headers=headers) as response:
                was_open = True
                async for record in _read_events(response, place):
                    click.echo(to_json(record) if form == "ndjson" else _line(record))
                    place.shown += 1
                    if place.shown == count:
                        return
        except CommandFailed as failed:
            if not was_open or failed.exit_code is not ExitCode.UNREACHABLE:
                raise
        click.echo("The connection ended; trying again.", err=True)
        await asyncio.sleep(RETRY_S)


async def _read_events(response: aiohttp.ClientResponse, place: _Place) -> AsyncGenerator[Mapping[str, Any]]:
    """The records of a stream; `place` follows what was read."""
    event, data, told_id = "", "", None
    async for raw in response.content:
        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            told_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data = value
        elif not name and raw in {b"\n", b"\r\n"}:
            place.last_id = told_id if told_id is not None else place.last_id
            if event == "record":
                yield json.loads(data)
            event, data, told_id = "", "", None


def _line(record: Mapping[str, Any]) -> str:
    cells = (printable("" if record.get(name) is None else record[name]).ljust(width) for name, width in _COLUMNS)
    return " ".join(cells).rstrip()
