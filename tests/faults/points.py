"""Points of a gateway at which it may die or freeze: around each SQL statement, each suspension of a task, the tool send.

Installed from outside, on asyncpg, asyncio and aiohttp themselves, so that it does not depend on how the gateway is written.
Points count from the moment a request with the header ``X-Fault-Marker`` arrives until it is answered.
"""

import asyncio
import functools
import importlib
import os
import re
import signal
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import uvloop
from aiohttp import web

MARKER = "X-Fault-Marker"
KINDS = ("sql", "await", "send")

_ORDER = re.compile(r"(?P<kind>[a-z]+)(?:/(?P<label>.+)/)?:(?P<number>\d+)")
_STATEMENTS = ("execute", "executemany", "fetch", "fetchmany", "fetchrow", "fetchval")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Do something at the n-th point of a kind (of those whose label matches)."""

    what: signal.Signals
    kind: str
    label: re.Pattern[str] | None
    number: int

    @classmethod
    def read(cls, text: str, number: signal.Signals) -> "Order":
        """``sql:17`` or ``sql/after COMMIT/:1``."""
        match = _ORDER.fullmatch(text)
        if match is None or match["kind"] not in KINDS:
            raise ValueError(f"not an order: {text}; write KIND:K or KIND/REGEX/:K, KIND one of {', '.join(KINDS)}")
        label = re.compile(match["label"], re.DOTALL) if match["label"] else None
        return cls(what=number, kind=match["kind"], label=label, number=int(match["number"]))


class Points:
    """Counts points, writes them down, and carries out the order at its point."""

    def __init__(self, order: Order | None, log: Path | None) -> None:
        self._order = order
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else None
        self._seen: Counter[str] = Counter()
        self._matching = 0
        self.is_armed = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Points | None":
        """By KILL_AT, STOP_AT and POINTS_LOG; None where none of them is set."""
        orders = [
            Order.read(environment[name], number)
            for name, number in (("KILL_AT", signal.SIGKILL), ("STOP_AT", signal.SIGSTOP))
            if environment.get(name)
        ]
        log = environment.get("POINTS_LOG")
        if len(orders) > 1:
            raise ValueError("give one of KILL_AT and STOP_AT")
        return cls(orders[0] if orders else None, Path(log) if log else None) if orders or log else None

    def reach(self, kind: str, label: str) -> None:
        """The gateway is at a point."""
        if not self.is_armed:
            return
        self._seen[kind] += 1
        if self._log is not None:
            os.write(self._log, f"{kind}:{self._seen[kind]} {' '.join(label.split())[:120]}\n".encode())
        order = self._order
        if order is None or order.kind != kind or (order.label is not None and not order.label.search(label)):
            return
        self._matching += 1
        if self._matching == order.number:
            if order.what is signal.SIGSTOP:
                self._order = None  # once
            os.kill(os.getpid(), order.what)


def install(points: Points) -> None:
    """Put the points in place. Call it before the gateway's loop exists."""
    prepared = importlib.import_module("asyncpg.prepared_stmt").PreparedStatement
    for name in _STATEMENTS:
        _around_statement(asyncpg.Connection, name, points, _given_text)
        _around_statement(prepared, name, points, _prepared_text)
    _around_sends(points)
    _count_from_marker(points)
    for module in (uvloop, asyncio):
        _step_tasks(module, points)


def _given_text(_: Any, args: tuple[Any, ...]) -> str:
    return str(args[0])


def _prepared_text(statement: Any, _: tuple[Any, ...]) -> str:
    return statement.get_query()


def _around_statement(owner: Any, name: str, points: Points, text_of: Callable[[Any, tuple[Any, ...]], str]) -> None:
    original: Callable[..., Coroutine[Any, Any, Any]] | None = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    async def around(self: Any, *args: Any, **named: Any) -> Any:
        text = text_of(self, args)
        points.reach("sql", f"before {name} {text}")
        found = await original(self, *args, **named)
        points.reach("sql", f"after {name} {text}")
        return found

    setattr(owner, name, around)


def _around_sends(points: Points) -> None:
    original: Callable[..., Coroutine[Any, Any, Any]] = aiohttp.ClientSession._request  # pyright: ignore[reportPrivateUsage]

    async def around(self: Any, method: str, url: Any, **named: Any) -> Any:
        points.reach("send", f"before {method}")
        found = await original(self, method, url, **named)
        points.reach("send", f"after {method}")
        return found

    aiohttp.ClientSession._request = around  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def _count_from_marker(points: Points) -> None:
    original: Callable[..., Coroutine[Any, Any, Any]] = web.Application._handle  # pyright: ignore[reportPrivateUsage]

    async def handle(self: Any, request: web.Request) -> Any:
        if MARKER not in request.headers:
            return await original(self, request)
        points.is_armed = True
        try:
            return await original(self, request)
        finally:
            points.is_armed = False

    web.Application._handle = handle  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def _step_tasks(module: Any, points: Points) -> None:
    original: Callable[[], asyncio.AbstractEventLoop] = module.new_event_loop

    def make_task(loop: asyncio.AbstractEventLoop, coro: Any, **named: Any) -> Any:
        return asyncio.Task(_stepped(coro, points), loop=loop, **named)

    def new_loop() -> asyncio.AbstractEventLoop:
        loop = original()
        loop.set_task_factory(make_task)
        return loop

    module.new_event_loop = new_loop


async def _stepped(coro: Coroutine[Any, Any, Any], points: Points) -> Any:
    return await _drive(coro, points)


@types.coroutine
def _drive(coro: Coroutine[Any, Any, Any], points: Points) -> Generator[Any, Any, Any]:
    """Run a coroutine as it would run by itself, with a point at each of its suspensions."""
    label = getattr(coro, "__qualname__", type(coro).__name__)
    step = functools.partial(coro.send, None)
    while True:
        try:
            waited_for = step()
        except StopIteration as stop:
            return stop.value
        points.reach("await", label)
        try:
            sent = yield waited_for
        except GeneratorExit:
            coro.close()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever is thrown in belongs to the coroutine
            step = functools.partial(coro.throw, error)
        else:
            step = functools.partial(coro.send, sent)
