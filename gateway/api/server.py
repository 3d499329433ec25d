"""The HTTP application: routes with their roles, and the two middlewares around every request."""

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as Next
from aiohttp.typedefs import Middleware

from gateway.api.envelope import MAX_BODY_BYTES
from gateway.api.openapi import describe
from gateway.api.problems import Problem, json_response, ledger_unavailable
from gateway.api.routes import ROUTES, Handler
from gateway.api.services import CALLER, SERVICES, Services
from gateway.domain.decision import LedgerUnavailable
from gateway.domain.principal import Role

LOG = structlog.get_logger("gateway.api")


def create_app(services: Services, *, allowed_hosts: frozenset[str] | None = None) -> web.Application:
    """The application. With `allowed_hosts` any other Host header is refused (``--dev``: no page on the web may call us)."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_answer_problems, _check_host(allowed_hosts)])
    app[SERVICES] = services
    for route in ROUTES:
        app.router.add_route(route.method, route.path, _guard(route.handler, route.roles) if route.roles else route.handler)
    description = describe()

    async def get_description(_: web.Request) -> web.Response:
        return json_response(description)

    app.router.add_get("/openapi.json", get_description)
    return app


def _guard(handler: Handler, roles: frozenset[Role]) -> Handler:
    async def guarded(request: web.Request) -> web.StreamResponse:
        headers = request.headers.getall("Authorization", [])
        caller = request.app[SERVICES].enforcer.authenticate(headers[0]) if len(headers) == 1 else None
        if caller is None:
            raise Problem(401, "NOT_AUTHENTICATED", "Send one known key as Authorization: Bearer …", headers={"WWW-Authenticate": "Bearer"})
        if not caller.roles & roles:
            raise Problem(403, "ROLE_REQUIRED", f"This route is for {' or '.join(sorted(roles))}.")
        request[CALLER] = caller
        return await handler(request)

    return guarded


def _check_host(allowed: frozenset[str] | None) -> Middleware:
    @web.middleware
    async def check_host(request: web.Request, handler: Next) -> web.StreamResponse:
        if allowed is not None and request.url.host not in allowed:
            raise Problem(403, "HOST_REFUSED", "This development gateway answers on loopback names only.")
        return await handler(request)

    return check_host


@web.middleware
async def _answer_problems(request: web.Request, handler: Next) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - the outermost place: everything becomes an answer
        return _problem_of(error, request).response()


def _problem_of(error: Exception, request: web.Request) -> Problem:
    match error:
        case Problem():
            return error
        case LedgerUnavailable():
            return ledger_unavailable()
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return Problem(405, "METHOD_NOT_ALLOWED", f"Use {allowed}.", headers={"Allow": allowed})
        case web.HTTPNotFound():
            return Problem(404, "NOT_FOUND", "There is no such route.")
        case web.HTTPRequestEntityTooLarge():
            return Problem(413, "BODY_TOO_LARGE", f"The body may have at most {MAX_BODY_BYTES} bytes.")
        case _:
            resource = request.match_info.route.resource
            LOG.error("request_failed", method=request.method, route=resource and resource.canonical, exc_info=error)
            return Problem(500, "INTERNAL_ERROR", "The gateway failed. Nothing more is known here; see its log.")
