"""A tool service in its own process that misbehaves on order and writes an effect ledger: the only truth about effects.

``python -m tests.faults.tool_service LEDGER [--database-url URL]`` prints ``{"url": …}`` and ends when its stdin does.
Each write's arguments may name a `mode`; it counts for the first delivery of a call only, a second one is served plainly.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from aiohttp import web

from tests.faults.dump import IS_ADMITTED
from tests.faults.evidence import JsonLines

HANG_S = 30.0
LATE_S = 1.0
SLOW_S = 0.25
HUGE_BYTES = 1024 * 1024


class Service:
    """Routes, what was applied, and the ledger of it."""

    def __init__(self, ledger: JsonLines, database_url: str | None) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._pool: asyncpg.Pool | None = None
        self._deliveries: Counter[str] = Counter()
        self._applied: dict[tuple[str, str], int] = {}
        self._applying: dict[tuple[str, str], asyncio.Task[int]] = {}
        self._orders: dict[str, list[str]] = {}
        self._effects = 0
        self._alone: set[asyncio.Task[int]] = set()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=1024 * 1024)
        app.router.add_get("/look/{action}", self._look)
        for path in ("/keyed", "/deaf", "/never", "/agreed", "/spend", "/send", "/perform"):
            app.router.add_post(path, self._write)
        app.router.add_post("/probe/{reference}", self._write)
        app.router.add_get("/probe/by-reference/{reference}", self._find)
        app.router.add_post("/control", self._order)
        return app

    async def _order(self, request: web.Request) -> web.Response:
        """``{"tool": …, "modes": […]}``: how the next deliveries of a tool go, whatever their arguments say."""
        body = await request.json()
        self._orders.setdefault(body["tool"], []).extend(body["modes"])
        return web.json_response({})

    async def _look(self, request: web.Request) -> web.StreamResponse:
        args = {"action": request.match_info["action"]} | dict(request.query)
        line = await self._arrive(request, "look", None, args)
        return await self._answer(request, line, 0)

    async def _find(self, request: web.Request) -> web.Response:
        effect = self._applied.get(("write_probe", request.match_info["reference"]))
        return web.json_response({"effect": effect}, status=404 if effect is None else 200)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        args = await request.json()
        route = request.path.split("/")[1]
        tool = route if route in {"spend", "send", "perform"} else f"write_{route}"
        key = request.match_info.get("reference") or request.headers.get("Idempotency-Key")
        line = await self._arrive(request, tool, key, args)
        mode = line["mode"].split(":")[0]
        if mode == "reset-before-apply":
            return _reset(request)
        if mode in {"refuse", "busy"}:
            return web.json_response({}, status=409 if mode == "refuse" else 503)
        if mode == "late":
            self._begin(line, LATE_S)
            return await _hang(request)
        return await self._answer(request, line, await self._begin(line, 0))

    async def _arrive(self, request: web.Request, tool: str, key: str | None, args: dict[str, Any]) -> dict[str, Any]:
        call_id = request.headers.get("X-Gateway-Call-Id", "")
        self._deliveries[call_id] += 1
        orders = self._orders.get(tool)
        mode = orders.pop(0) if orders else args.get("mode", "ok") if self._deliveries[call_id] == 1 else "ok"
        line: dict[str, Any] = {
            "tool": tool,
            "call_id": call_id,
            "key": key,
            "action": args["action"],
            "digest": hashlib.sha256(json.dumps(args, sort_keys=True).encode()).hexdigest(),
            "mode": mode,
        }
        at = time.time()
        is_admitted = await self._see(call_id)
        self._ledger.write({"event": "arrival", "at": at, "is_admitted": is_admitted} | line)
        return line

    async def _see(self, call_id: str) -> bool | None:
        """Whether the call's decision is committed, as another connection sees it at this moment."""
        if self._database_url is None:
            return None
        try:
            async with asyncio.timeout(0.2):
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(self._database_url, min_size=1, max_size=4)
                async with self._pool.acquire() as connection:
                    return await connection.fetchval(IS_ADMITTED, UUID(call_id))
        except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return None  # the database is away; the checker then goes by the times

    def _begin(self, line: dict[str, Any], delay_s: float) -> asyncio.Task[int]:
        """Apply, once for each key where the route honours keys; whoever comes meanwhile waits for the same effect."""
        key: str | None = line["key"]
        if key is None or line["tool"] not in {"write_keyed", "write_probe"}:
            task = asyncio.create_task(self._apply(line, delay_s))
            self._alone.add(task)  # the loop itself holds tasks weakly
            return task
        identity = (str(line["tool"]), key)
        if identity not in self._applying:
            self._applying[identity] = asyncio.create_task(self._apply(line, delay_s))
        return self._applying[identity]

    async def _apply(self, line: dict[str, Any], delay_s: float) -> int:
        if delay_s:
            await asyncio.sleep(delay_s)
        self._effects += 1
        self._ledger.write({"event": "applied", "at": time.time()} | line)
        if line["key"] is not None:
            self._applied[line["tool"], line["key"]] = self._effects
        return self._effects

    async def _answer(self, request: web.Request, line: dict[str, Any], effect: int) -> web.StreamResponse:
        mode, _, number = line["mode"].partition(":")
        match mode:
            case "apply-then-hang":
                return await _hang(request)
            case "apply-then-reset":
                return _reset(request)
            case "apply-then-500":
                return web.json_response({}, status=500)
            case "garbage":
                return web.Response(body=b'{"action": \xff\xfe', content_type="application/json")
            case "huge":
                return web.json_response({"action": "x" * HUGE_BYTES})
            case "slow":
                await asyncio.sleep(int(number) / 1000 if number else SLOW_S)
            case _:
                pass
        answer = web.json_response({"action": line["action"], "effect": effect})
        try:
            await answer.prepare(request)
            await answer.write_eof()
        except ConnectionResetError:
            pass  # to nobody
        else:
            self._ledger.write({"event": "answered", "at": time.time()} | line)
        return answer


async def _hang(request: web.Request) -> web.StreamResponse:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANG_S):
            while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 (nothing to wait on)
                await asyncio.sleep(0.02)
    return _reset(request)


def _reset(request: web.Request) -> web.StreamResponse:
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()  # to nobody


async def _serve(ledger: Path, database_url: str | None) -> None:
    service = Service(JsonLines(ledger, sync=True), database_url)
    runner = web.AppRunner(service.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)  # noqa: T201 - the ready line
    await asyncio.to_thread(sys.stdin.read)  # whoever started us holds the other end
    await runner.cleanup()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="tests.faults.tool_service")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--database-url")
    given = parser.parse_args()
    asyncio.run(_serve(given.ledger, given.database_url))


if __name__ == "__main__":
    main()
