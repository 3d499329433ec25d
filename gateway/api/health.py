"""Whether the gateway lives and is ready; the description of its API."""

from aiohttp import web

from gateway import __version__
from gateway.api.problems import json_response
from gateway.api.services import SERVICES


async def get_health(_: web.Request) -> web.Response:
    """The process answers."""
    return json_response({"status": "ok", "version": __version__})


async def get_readiness(request: web.Request) -> web.Response:
    """Calls can be governed: 200, or 503 naming what is missing."""
    services = request.app[SERVICES]
    checks = await services.readiness() | {"accepting": not services.draining.is_set()}
    is_ready = all(checks.values())
    return json_response({"status": "ready" if is_ready else "not_ready", "checks": checks}, status=200 if is_ready else 503)
