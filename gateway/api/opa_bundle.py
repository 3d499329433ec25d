"""The policies in force as an OPA bundle: what OPA pulls, and waits for the next of."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.api.problems import Problem
from gateway.api.services import CALLER, SERVICES
from gateway.policy.opa_bundle import CONTENT_TYPE, OpaBundle

MAX_WAIT_S = 60
_LOOK_S = 0.05


async def get_active_bundle(request: web.Request) -> web.Response:
    """200 with the bundle, or 304 where the caller has it; ``Prefer: wait=N`` holds the latter back until there is a new one."""
    services = request.app[SERVICES]

    async def look() -> OpaBundle:
        in_force = services.revisions.current(request[CALLER].tenant)
        if in_force is None:
            raise Problem(404, "NOT_FOUND", "No bundle is in force.")
        return await services.opa_bundles.of(in_force.bundle.policy)

    return await answer_bundle(request, look, is_ending=services.draining.is_set)


async def answer_bundle(
    request: web.Request, look: Callable[[], Awaitable[OpaBundle]], *, is_ending: Callable[[], bool] = lambda: False
) -> web.Response:
    """The bundle that `look` gives, by OPA's bundle protocol."""
    known = {tag.value for tag in request.if_none_match or ()}
    bundle = await look()
    loop = asyncio.get_running_loop()
    until = loop.time() + _read_wait(request)
    # Looking costs nothing, and nobody who puts a revision in force has to tell anybody here.
    while bundle.etag in known and loop.time() < until and not is_ending() and not _has_left(request):
        await asyncio.sleep(_LOOK_S)
        bundle = await look()
    headers = {"ETag": f'"{bundle.etag}"', "Cache-Control": "no-store"}
    if bundle.etag in known:
        return web.Response(status=304, headers=headers)
    return web.Response(body=bundle.content, content_type=CONTENT_TYPE, headers=headers)


def _read_wait(request: web.Request) -> int:
    """Seconds of ``Prefer: …;wait=N`` (RFC 7240), bounded; 0 where there is none."""
    for preference in request.headers.get("Prefer", "").replace(",", ";").split(";"):
        name, _, value = preference.strip().partition("=")
        if name == "wait" and value.isdecimal() and len(value) <= 4:
            return min(int(value), MAX_WAIT_S)
    return 0


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
