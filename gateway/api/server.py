"""The HTTP application: routes with their roles, and the two middlewares around every request."""

import re

import structlog
from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Handler as Next
from aiohttp.typedefs import Middleware

from gateway.api.envelope import MAX_BODY_BYTES
from gateway.api.openapi import describe
from gateway.api.problems import Problem, json_response, ledger_unavailable
from gateway.api.routes import ROUTES, Handler, Route
from gateway.api.services import CALLER, SERVICES, Services
from gateway.api.streams import EXPORTS, TAILS, Places
from gateway.domain.decision import LedgerUnavailable

LOG = structlog.get_logger("gateway.api")
MAX_EXPORTS = 4
MAX_TAILS = 32
"""Streams at once on one process; each asks the ledger again and again."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?")
"""A Host header as browsers write it: a name or address, and perhaps a port."""


def create_app(services: Services, *, allowed_hosts: frozenset[str] | None = None) -> web.Application:
    """The application. With `allowed_hosts` any other Host header is refused (``--dev``: no page on the web may call us)."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_answer_problems, _check_host(allowed_hosts)])
    app[SERVICES] = services
    app[EXPORTS], app[TAILS] = Places(MAX_EXPORTS), Places(MAX_TAILS)
    for route in ROUTES:
        handler = _guard(route) if route.roles else route.handler
        app.router.add_route(route.method, route.path, handler, expect_handler=_expect)
    description = describe()

    async def get_description(_: web.Request) -> web.Response:
        return json_response(description)

    app.router.add_get("/openapi.json", get_description)
    return app


def make_runner(app: web.Application, *, patience_s: float) -> web.AppRunner:
    """A server for the application, which waits `patience_s` for open requests when it stops."""
    # Bodies reach the application as they were sent: it refuses compressed ones itself, with a problem.
    return web.AppRunner(app, access_log=None, shutdown_timeout=patience_s, auto_decompress=False)


def _guard(route: Route) -> Handler:
    known = [parameter.name for parameter in route.parameters]

    async def guarded(request: web.Request) -> web.StreamResponse:
        headers = request.headers.getall("Authorization", [])
        caller = await request.app[SERVICES].enforcer.authenticate(headers[0]) if len(headers) == 1 else None
        if caller is None:
            raise Problem(401, "NOT_AUTHENTICATED", "Send one known key as Authorization: Bearer …", headers={"WWW-Authenticate": "Bearer"})
        if not caller.roles & route.roles:
            if route.when_refused is not None:
                await route.when_refused(request, caller)
            raise Problem(403, "ROLE_REQUIRED", f"This route is for {' or '.join(sorted(route.roles))}.")
        _check_parameters(request, known)
        request[CALLER] = caller
        return await route.handler(request)

    return guarded


def _check_parameters(request: web.Request, known: list[str]) -> None:
    """A misspelt parameter would be a filter that is not applied."""
    for name in request.query:
        if name not in known:
            allowed = f"allowed: {', '.join(known)}" if known else "this route has none"
            raise Problem(400, "PARAMETER_INVALID", f"Unknown parameter `{_shown(name)}`; {allowed}.")
        if len(request.query.getall(name)) > 1:
            raise Problem(400, "PARAMETER_INVALID", f"Give the parameter `{name}` once.")


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in name[:64])


def _check_host(allowed: frozenset[str] | None) -> Middleware:
    @web.middleware
    async def check_host(request: web.Request, handler: Next) -> web.StreamResponse:
        if allowed is not None and not _names_one_of(allowed, request):
            raise Problem(403, "HOST_REFUSED", "This development gateway answers on loopback names only.")
        return await handler(request)

    return check_host


def _names_one_of(allowed: frozenset[str], request: web.Request) -> bool:
    # The raw header: a URL made of it raises on a strange one, and forgives what no browser sends.
    headers = request.headers.getall("Host", [])
    match = _HOST.fullmatch(headers[0]) if len(headers) == 1 else None
    # A target with an authority of its own (an absolute URL) would count for more than the header.
    if match is None or not request.raw_path.startswith("/"):
        return False
    return match[1].strip("[]").lower() in allowed and int(match[2] or 0) <= 65535


async def _expect(request: web.Request) -> web.StreamResponse | None:
    """Ask for the body where the client waits for that; anything else that is expected is a problem."""
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].lower() != "100-continue":
        return Problem(417, "EXPECTATION_FAILED", "Leave the Expect header out, or send `100-continue`.").response()
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # what follows is the answer, and nothing of it was sent
    return None


@web.middleware
async def _answer_problems(request: web.Request, handler: Next) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - the outermost place: everything becomes an answer
        return _problem_of(error, request).response()


def _problem_of(error: Exception, request: web.Request) -> Problem:
    match error:
        case Problem():
            problem = error
        case LedgerUnavailable():
            problem = ledger_unavailable()
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            problem = Problem(405, "METHOD_NOT_ALLOWED", f"Use {allowed}.", headers={"Allow": allowed})
        case web.HTTPNotFound():
            problem = Problem(404, "NOT_FOUND", "There is no such route.")
        case web.HTTPRequestEntityTooLarge():
            problem = Problem(413, "BODY_TOO_LARGE", f"The body may have at most {MAX_BODY_BYTES} bytes.")
        case ConnectionError() | web.RequestPayloadError() if not isinstance(error, ConnectionError) or _has_left(request):
            # Nobody's defect, and where the client hung up, nobody reads this.
            problem = Problem(400, "BODY_INCOMPLETE", "The body ended early, or is not sent in the form that its headers say.")
        case _:
            resource = request.match_info.route.resource
            LOG.error("request_failed", method=request.method, route=resource and resource.canonical, exc_info=error)
            problem = Problem(500, "INTERNAL_ERROR", "The gateway failed. Nothing more is known here; see its log.")
    return problem


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
