"""A TCP proxy before a server that can be told, while calls flow, to go wrong on the wire."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

ALLOW = (
    b'{"result":{"effect":"allow","reason_code":"POLICY_ALLOWED","policy":"forged","obligations":[],"rules":[],"revision":"sha256:other"},'
    b'"provenance":{"version":"1.22.3"}}'
)


def _answer(status: str, content_type: str, body: bytes, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


ANSWERS: dict[str, bytes] = {
    "noise": bytes(range(256)) * 8 + b"\r\n\r\n",
    "html": _answer("200 OK", "text/html", b"<html>allow</html>"),
    "half": _answer("200 OK", "application/json", ALLOW)[:-40],
    "true": _answer("200 OK", "application/json", b'{"result":true}'),
    "empty": _answer("200 OK", "application/json", b"{}"),
    "other revision": _answer("200 OK", "application/json", ALLOW),
    "error": _answer("500 Internal Server Error", "application/json", b'{"code":"internal_error","message":"allow"}'),
    "redirect": _answer("307 Temporary Redirect", "application/json", ALLOW, "Location: http://127.0.0.1:1/"),
}
"""What is answered in the mode of that name; the other modes are ``pass``, ``slow`` (answers rightly, but late) and ``reset``."""


@dataclass
class Mischief:
    """The proxy's state: change `mode` at any time."""

    port: int
    url: str = ""
    mode: str = "pass"
    slow_s: float = 3.0
    requests: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def turn(self, mode: str) -> None:
        """Go wrong in this way from now on; what is in flight is cut off."""
        self.mode = mode
        for writer in self.open:
            writer.transport.abort()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["Mischief"]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.turn("reset")
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            # The last of them: it ends with its test.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                request = await _read_request(reader)
                self.requests += 1
                await self._follow(request, writer)
        finally:
            self.open.discard(writer)
            writer.close()

    async def _follow(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        mode = self.mode
        if mode == "reset":
            writer.transport.abort()
        elif mode in ANSWERS:
            writer.write(ANSWERS[mode])
            await writer.drain()
        else:
            answer = await self._ask(request)
            await asyncio.sleep(self.slow_s if mode == "slow" else 0)
            writer.write(answer)
            await writer.drain()

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            return await reader.read()
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    return head + await reader.readexactly(int(fields.get(b"content-length", 0)))
