"""A model vendor's API on loopback: it says what it was told to say, one answer a request, and keeps what it was asked."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(kw_only=True)
class Vendor:
    """`url` is without a path, and so for every vendor; bodies and paths are in the order of the requests."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    paths: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def run_vendor(*says: Any) -> AsyncGenerator[Vendor]:
    """The API with its answers; a request beyond them is a 500."""
    vendor = Vendor(url="")
    left = list(says)

    async def answer(request: web.Request) -> web.Response:
        vendor.paths.append(request.path)
        vendor.bodies.append(await request.json())
        return web.json_response(left.pop(0)) if left else web.json_response({"error": {"message": "nothing left to say"}}, status=500)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        vendor.url = str(server.make_url("/")).rstrip("/")
        yield vendor
