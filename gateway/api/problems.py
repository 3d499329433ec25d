"""RFC 9457 problems: what is wrong with a request itself, apart from what the model wrote."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel

CONTENT_TYPE = "application/problem+json"


class ProblemError(BaseModel):
    """One place of the request that is wrong: a JSON pointer into the body (or a parameter's name), and a sentence.

    In a query, `offset` and `length` say which characters of it.
    """

    pointer: str
    message: str
    offset: int | None = None
    length: int | None = None


class ProblemDetails(BaseModel):
    """An RFC 9457 problem. `code` is stable; `detail` says what to do."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemError] = []


_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Body too large",
    415: "Unsupported media type",
    417: "Expectation failed",
    422: "Not acceptable",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}


class Problem(Exception):
    """Ends a request with a problem answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: list[ProblemError] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.details = ProblemDetails(title=_TITLES[status], status=status, code=code, detail=detail, errors=errors or [])
        self.headers = dict(headers or {})

    def response(self) -> web.Response:
        """The answer."""
        body = self.details.model_dump(exclude_defaults=True) | {"type": self.details.type}
        return json_response(body, status=self.details.status, content_type=CONTENT_TYPE, headers=self.headers)


def ledger_unavailable() -> Problem:
    """503: nothing of the request was done."""
    return Problem(503, "LEDGER_UNAVAILABLE", "Nothing was done. Repeat the request later.", headers={"Retry-After": "1"})


def json_response(
    body: Any, *, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON answer."""
    return web.Response(body=orjson.dumps(body), status=status, content_type=content_type, headers=headers)
