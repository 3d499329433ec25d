"""A TCP server that goes wrong in the ways that HTTP frameworks cannot."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class BrokenServer:
    """How often the server was connected to, and how many requests it read to the end of their headers."""

    connections: int = 0
    requests: int = 0
    origin: str = ""

    async def read_request(self, reader: asyncio.StreamReader) -> None:
        """Read one request up to its body."""
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1


@asynccontextmanager
async def run_broken_server(script: Callable[[BrokenServer], Script]) -> AsyncGenerator[BrokenServer]:
    """A server on a free port whose connections each follow `script`, then are closed."""
    server = BrokenServer()
    follow = script(server)
    open_connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        try:
            await follow(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            open_connections.discard(task)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.origin = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in open_connections:
            task.cancel()
        await asyncio.sleep(0)
        await listener.wait_closed()


def accept_then_close(_server: BrokenServer) -> Script:
    """Close each connection at once."""

    async def script(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    return script


def read_then_close(server: BrokenServer) -> Script:
    """Read the request, then close without an answer."""

    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)

    return script


def read_then_hang(server: BrokenServer) -> Script:
    """Read the request, then say nothing."""

    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        await asyncio.sleep(60)

    return script


def answer_bytes(answer: bytes, *, then_hang: bool = False) -> Callable[[BrokenServer], Script]:
    """Read each request and write these bytes; then go on, or hang with the connection open."""

    def make(server: BrokenServer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await server.read_request(reader)
            writer.write(answer)
            await writer.drain()
            if then_hang:
                await asyncio.sleep(60)

        return script

    return make


def answer_once_then_close_on_the_next(server: BrokenServer) -> Script:
    """Answer the first request and keep the connection; read the second one on it, then close."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await server.read_request(reader)

    return script


def find_refused_origin() -> str:
    """An origin where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"
