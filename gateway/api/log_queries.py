"""Reading a search of the decision log from the parameters of a request."""

from datetime import datetime

from aiohttp import web

from gateway.api.problems import Problem, ProblemError
from gateway.domain.query_language import YEARS, QueryError, narrow, read_moment, read_query
from gateway.domain.search import SEARCH_FIELDS, Search


def read_search(request: web.Request) -> Search:
    """What `q`, `after` and `before` ask for. Raises Problem."""
    try:
        search = read_query(request.query.get("q", ""))
    except QueryError as error:
        found = ProblemError(pointer="q", message=error.message, offset=error.offset, length=error.length)
        raise Problem(400, "QUERY_INVALID", f"At character {error.offset + 1} of `q`: {error.message}", errors=[found]) from None
    search = narrow(search, after=_read_time(request, "after"), before=_read_time(request, "before"))
    if search.after is not None and search.before is not None and search.after >= search.before:
        raise Problem(400, "PARAMETER_INVALID", "`after` must be earlier than `before`; nothing lies between them.")
    return search


def name_search(request: web.Request) -> tuple[object, ...]:
    """What makes a search another one, as its cursors are bound to it."""
    return tuple(request.query.get(name) for name in ("q", "after", "before"))


def read_fields(request: web.Request, name: str) -> list[str]:
    """The fields of records that a parameter lists by their words in queries. Raises Problem."""
    words = [word for word in request.query.get(name, "").split(",") if word]
    unknown = [word for word in words if word not in SEARCH_FIELDS]
    if unknown or len(words) > len(SEARCH_FIELDS):
        raise Problem(400, "PARAMETER_INVALID", f"`{name}` lists some of {', '.join(SEARCH_FIELDS)}, parted by commas.")
    return [SEARCH_FIELDS[word] for word in dict.fromkeys(words)]


def read_position(request: web.Request, name: str) -> int | None:
    """A position that a parameter gives. Raises Problem."""
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Problem(400, "PARAMETER_INVALID", f"`{name}` is the position of a record, a number from 0.")
    return int(text)


def _read_time(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    if text is None:
        return None
    moment = read_moment(text)
    if moment is None:
        detail = f"`{name}` is a day such as 2026-11-01 or a time such as 2026-11-01T00:00:00Z, not before {YEARS[0]}."
        raise Problem(400, "PARAMETER_INVALID", detail)
    return moment
