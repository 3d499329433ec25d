"""The load generator, a process of its own: keep-alive connections that send one request after the other.

Reads one JSON plan from stdin and writes one JSON result to stdout. Written on bare sockets, because a client library would
take more of the machine's two cores than the servers that it measures.
"""

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import uvloop

LONGEST_S = 1_800.0
"""No measure takes longer; beyond it something hangs."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One measure. In `body`, ``@CALLER@`` and ``@N@`` stand for the caller's number and the request's."""

    host: str
    port: int
    path: str
    key: str
    body: str
    expect: str
    """What every measured answer must contain."""
    callers: int = 32
    per_second: float | None = None
    """Open loop: arrivals a second, whatever the answers do. None: each caller sends when it has its answer."""
    seconds: float = 5.0
    warm_up_s: float = 1.0
    calls: int | None = None
    """Closed loop: end after so many answers instead of after `seconds`."""


@dataclass(kw_only=True)
class Result:
    """Latencies in milliseconds. An open loop counts from the time at which a request was due, not from when it was sent."""

    answers: int
    all_answers: int
    """With the warm-up's."""
    rate: float
    p50_ms: float
    p99_ms: float
    thirds: list[float] = field(default_factory=list)
    """Rates of the first, middle and last third: whether it gets slower as it goes."""
    wrong: int = 0
    first_wrong: str = ""


class Connection(asyncio.Protocol):
    """One keep-alive connection; `done` is told the answer's bytes."""

    def __init__(self, load: "Load", number: int) -> None:
        self.number = number
        self._load = load
        self._transport: asyncio.WriteTransport | None = None
        self._incoming = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's are none by inheritance

    def ask(self, request: bytes, due: float) -> None:
        """Send a request that was due at `due` (`time.perf_counter`)."""
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        head, separator, body = self._incoming.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        answer, self._incoming = self._incoming, b""
        self._load.answered(self, answer, self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost(exc)

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()


class Load:
    """One plan being carried out."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._expect = plan.expect.encode()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._sent = 0
        self._idle: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._latencies: list[float] = []
        self._ends: list[float] = []
        self._all = 0
        self._wrong = 0
        self._first_wrong = ""
        self._began = self._ended = 0.0

    async def carry_out(self) -> Result:
        """Open the connections, send, and summarise."""
        plan = self._plan
        connections = [await self._connect(number) for number in range(plan.callers)]
        self._began = time.perf_counter() + plan.warm_up_s
        self._ended = self._began + plan.seconds
        limit = plan.warm_up_s + plan.seconds if plan.calls is None else LONGEST_S
        self._loop.call_later(limit, self._finish)
        if plan.per_second is None:
            for connection in connections:
                connection.ask(self._request(connection), time.perf_counter())
        else:
            self._idle.extend(connections)
            arrivals = asyncio.create_task(self._arrive(plan.per_second, limit))
            arrivals.add_done_callback(lambda _: None)
        await self._over
        for connection in connections:
            connection.close()
        return self._summary()

    def answered(self, connection: Connection, answer: bytes, due: float) -> None:
        """Count an answer, and send the next request."""
        now = time.perf_counter()
        self._all += 1
        if self._began <= now and not self._over.done():
            self._latencies.append(now - due)
            self._ends.append(now)
            if not answer.startswith(b"HTTP/1.1 200") or self._expect not in answer:
                self._wrong += 1
                self._first_wrong = self._first_wrong or answer.decode(errors="replace")[-600:]
        if self._over.done():
            return
        if self._plan.calls is not None and len(self._latencies) >= self._plan.calls:
            self._finish()
        elif self._plan.per_second is None:
            connection.ask(self._request(connection), now)
        elif self._waiting:
            connection.ask(self._request(connection), self._waiting.popleft())
        else:
            self._idle.append(connection)

    def lost(self, error: Exception | None) -> None:
        """A connection ended; before the end of the measure nothing may."""
        if not self._over.done():
            self._over.set_exception(RuntimeError(f"the server closed a connection: {error}"))

    async def _arrive(self, per_second: float, seconds: float) -> None:
        first = time.perf_counter()
        for number in range(int(per_second * seconds)):
            due = first + number / per_second
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            if self._idle:
                connection = self._idle.popleft()
                connection.ask(self._request(connection), due)
            else:
                self._waiting.append(due)

    async def _connect(self, number: int) -> Connection:
        _, connection = await self._loop.create_connection(lambda: Connection(self, number), self._plan.host, self._plan.port)
        return connection

    def _request(self, connection: Connection) -> bytes:
        plan = self._plan
        self._sent += 1
        body = plan.body.replace("@CALLER@", str(connection.number)).replace("@N@", str(self._sent))
        head = f"POST {plan.path} HTTP/1.1\r\nHost: {plan.host}\r\nAuthorization: Bearer {plan.key}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    def _finish(self) -> None:
        if not self._over.done():
            self._ended = time.perf_counter()
            self._over.set_result(None)

    def _summary(self) -> Result:
        if not self._latencies:
            raise RuntimeError("no answer came in time")
        ordered, seconds = sorted(self._latencies), self._ended - self._began
        third = seconds / 3
        counts = [sum(self._began + third * part <= end < self._began + third * (part + 1) for end in self._ends) for part in range(3)]
        return Result(
            answers=len(ordered),
            all_answers=self._all,
            rate=len(ordered) / seconds,
            p50_ms=ordered[len(ordered) // 2] * 1000,
            p99_ms=ordered[int(len(ordered) * 0.99)] * 1000,
            thirds=[count / third for count in counts],
            wrong=self._wrong,
            first_wrong=self._first_wrong,
        )


def _length(head: bytes) -> int:
    start = head.lower().index(b"content-length:") + 15
    return int(head[start:].split(b"\r\n", 1)[0])


async def _carry_out(plan: dict[str, Any]) -> Result:
    return await Load(Plan(**plan)).carry_out()


def main() -> None:
    """Plan on stdin, result on stdout."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_carry_out(json.load(sys.stdin)))
    sys.stdout.write(json.dumps(asdict(result) | {"cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
