"""TCP proxies that cut a connection at a chosen byte or message, each in a thread with a loop of its own.

`PostgresProxy` understands as much of the PostgreSQL protocol (version 3) as it takes to find a COMMIT and its answer;
`ToolProxy` counts the bytes of an answer.
"""

import asyncio
import random
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Self

from tests.faults.dump import COMMIT_TEXT

_SSL_REQUEST = 80877103
_CHUNK = 64 * 1024

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Connect = Callable[[], Awaitable[tuple[Reader, Writer]]]


class Proxy:
    """A listener on loopback, in a thread of its own."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.Task[None]] = set()
        self.cuts = 0
        """How often a connection was cut so far."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _close(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, client: Reader, to_client: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        to_server: Writer | None = None
        try:
            server, to_server = await self._connect()
            await self.carry(client, to_client, server, to_server)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.transport.abort()
            self._open.discard(task)

    async def carry(self, client: Reader, to_client: Writer, server: Reader, to_server: Writer) -> None:
        """Carry one connection until either side ends or it is cut."""
        raise NotImplementedError


async def _first(*work: Coroutine[Any, Any, None]) -> None:
    """Run all; when the first ends, end the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


PostgresCut = Literal["answer", "request"]
"""Drop the answer to a COMMIT (it is committed and nobody knows), or the COMMIT itself (it never arrives)."""


class PostgresProxy(Proxy):
    """From TCP to PostgreSQL's local socket. `rate` of the COMMITs are cut, or exactly the next one after `arm`."""

    def __init__(self, socket_folder: str, *, rate: float = 0.0, seed: int = 0) -> None:
        path = f"{socket_folder}/.s.PGSQL.5432"
        super().__init__(lambda: asyncio.open_unix_connection(path))
        self.rate = rate
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._armed: tuple[PostgresCut, Callable[[str], bool]] | None = None

    def url(self, database: str, user: str) -> str:
        """Where asyncpg reaches the database through this proxy."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def arm(self, cut: PostgresCut, *, during: Callable[[str], bool] = lambda _: True) -> None:
        """Cut at the next COMMIT of a transaction one of whose statements `during` accepts."""
        self._armed = (cut, during)

    def decide(self, statements: list[str]) -> PostgresCut | None:
        """Whether the COMMIT that was just sent is cut."""
        if self._armed is not None:
            cut, during = self._armed
            if not any(map(during, statements)):
                return None
            self._armed = None
            return cut
        if self._random.random() >= self.rate:
            return None
        return self._random.choice(("answer", "request"))

    async def carry(self, client: Reader, to_client: Writer, server: Reader, to_server: Writer) -> None:
        """Message by message, both ways."""
        await _greet(client, to_client, to_server)
        state = _Exchange()
        await _first(self._forward(client, to_server, state), self._backward(server, to_client, state))

    async def _forward(self, client: Reader, to_server: Writer, state: "_Exchange") -> None:
        while True:
            kind, message = await _read_message(client)
            if kind in b"QP":
                state.note(kind, message)
                if state.is_commit:
                    cut = self.decide(state.statements)
                    state.statements = []
                    if cut == "request":
                        self.cuts += 1
                        return
                    state.is_answer_cut = cut == "answer"
            to_server.write(message)
            await to_server.drain()

    async def _backward(self, server: Reader, to_client: Writer, state: "_Exchange") -> None:
        while True:
            kind, message = await _read_message(server)
            if state.is_answer_cut and kind == b"C":
                self.cuts += 1
                return
            to_client.write(message)
            await to_client.drain()


class _Exchange:
    """What was said on a connection since the last COMMIT."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.is_commit = False
        self.is_answer_cut = False

    def note(self, kind: bytes, message: bytes) -> None:
        parts = message[5:].split(b"\0")
        text = (parts[0] if kind == b"Q" else parts[1]).decode("utf-8", "replace")
        self.is_commit = COMMIT_TEXT.match(text) is not None
        self.statements.append(text)


async def _greet(client: Reader, to_client: Writer, to_server: Writer) -> None:
    """The untyped first messages: no TLS, then the start-up message as it is."""
    while True:
        head = await client.readexactly(8)
        length, code = struct.unpack(">II", head)
        rest = await client.readexactly(length - 8)
        if code == _SSL_REQUEST:
            to_client.write(b"N")
            continue
        to_server.write(head + rest)
        return


async def _read_message(reader: Reader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)


@dataclass(frozen=True, kw_only=True)
class ToolCut:
    """Cut a connection: before the request reaches the tool, or after so many bytes of its answer."""

    is_before: bool = False
    after_bytes: int = 0


class ToolProxy(Proxy):
    """From a gateway to the tool service. `rate` of the requests are cut, or exactly the next one after `arm`."""

    def __init__(self, host: str, port: int, *, rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(lambda: asyncio.open_connection(host, port))
        self.rate = rate
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._armed: ToolCut | None = None

    @property
    def origin(self) -> str:
        """Where the gateways reach the tools through this proxy."""
        return f"http://127.0.0.1:{self.port}"

    def arm(self, cut: ToolCut) -> None:
        """Cut the next request."""
        self._armed = cut

    def decide(self) -> ToolCut | None:
        """Whether, and where, the request that just came is cut."""
        if self._armed is not None:
            cut, self._armed = self._armed, None
            return cut
        if self._random.random() >= self.rate:
            return None
        return ToolCut(is_before=self._random.random() < 0.25, after_bytes=self._random.choice((0, 1, 17, 100, 160, 200)))

    async def carry(self, client: Reader, to_client: Writer, server: Reader, to_server: Writer) -> None:
        """One request after the other, as HTTP/1.1 has them on a connection."""
        cut: ToolCut | None = None
        sent, is_answered = 0, True

        async def forward() -> None:
            nonlocal cut, sent, is_answered
            while chunk := await client.read(_CHUNK):
                if is_answered:  # else it is the rest of the same request
                    cut, sent, is_answered = self.decide(), 0, False
                if cut is not None and cut.is_before:
                    self.cuts += 1
                    return
                to_server.write(chunk)
                await to_server.drain()

        async def backward() -> None:
            nonlocal sent, is_answered
            while chunk := await server.read(_CHUNK):
                is_answered = True
                if cut is not None and sent + len(chunk) > cut.after_bytes:
                    to_client.write(chunk[: max(0, cut.after_bytes - sent)])
                    await to_client.drain()
                    self.cuts += 1
                    return
                sent += len(chunk)
                to_client.write(chunk)
                await to_client.drain()

        await _first(forward(), backward())
