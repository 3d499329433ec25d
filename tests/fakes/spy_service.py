"""A real HTTP service that answers as it is told and remembers every request that reached it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One request as the service saw it."""

    method: str
    raw_path: str
    headers: CIMultiDictProxy[str]
    body: bytes


@dataclass
class SpyService:
    """Set `status`, `body`, `headers` and `delay_s` (before it answers); read `arrivals`."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_s: float = 0.0
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    origin: str = ""

    @property
    def last(self) -> Arrival:
        """The newest arrival."""
        return self.arrivals[-1]

    async def answer(self, request: web.Request) -> web.Response:
        """Remember and answer."""
        body = await request.read()
        headers = CIMultiDictProxy(CIMultiDict(request.headers))
        self.arrivals.append(Arrival(method=request.method, raw_path=request.raw_path, headers=headers, body=body))
        await asyncio.sleep(self.delay_s)
        return web.Response(status=self.status, body=self.body, headers={"Content-Type": "application/json", **self.headers})


@asynccontextmanager
async def run_spy_service() -> AsyncGenerator[SpyService]:
    """A spy on a free port of the loopback address."""
    spy = SpyService()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", spy.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        spy.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield spy
    finally:
        await runner.cleanup()
