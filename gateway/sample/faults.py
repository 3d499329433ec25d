"""Faults on order: the next request of a kind goes wrong in a chosen way, so that doubt can be rehearsed."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from enum import StrEnum

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SLOW_SECONDS = 2.0
_HANG_SECONDS = 120.0


class Mode(StrEnum):
    """What goes wrong; *apply* is what the request asks for."""

    HANG_AFTER_APPLY = "hang_after_apply"
    RESET_AFTER_APPLY = "reset_after_apply"
    RESET_BEFORE_APPLY = "reset_before_apply"
    ERROR_500 = "error_500"
    SLOW = "slow"


class Faults:
    """Orders by (method, path), each for one request; the oldest first. `path` is exact or the route's own (``/bookings/{ref}``)."""

    def __init__(self) -> None:
        self._orders: list[tuple[str, str, Mode]] = []

    def order(self, method: str, path: str, mode: Mode) -> None:
        """Let the next such request go wrong."""
        self._orders.append((method.upper(), path, mode))

    async def pass_through(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle `request`, or let it go wrong as it was ordered."""
        mode = self._take(request)
        match mode:
            case None:
                return await handler(request)
            case Mode.ERROR_500:
                return web.json_response({"error": "broken on order"}, status=500)
            case Mode.SLOW:
                await asyncio.sleep(SLOW_SECONDS)
                return await handler(request)
            case Mode.HANG_AFTER_APPLY | Mode.RESET_AFTER_APPLY:
                with contextlib.suppress(web.HTTPException):
                    await handler(request)
            case Mode.RESET_BEFORE_APPLY:
                pass
        if mode is Mode.HANG_AFTER_APPLY:
            await _wait_for_client_to_leave(request)
        _reset(request)
        return web.Response()  # to nobody

    def _take(self, request: web.Request) -> Mode | None:
        resource = request.match_info.route.resource
        paths = {request.path, resource.canonical if resource is not None else request.path}
        for position, (method, path, mode) in enumerate(self._orders):
            if method == request.method and path in paths:
                del self._orders[position]
                return mode
        return None


async def _wait_for_client_to_leave(request: web.Request) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HANG_SECONDS):
            while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 (nothing to wait on)
                await asyncio.sleep(0.05)


def _reset(request: web.Request) -> None:
    """Drop the connection with a TCP reset instead of an orderly end."""
    if request.transport is None:
        return
    connection: socket.socket | None = request.transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()
