"""Pages of lists: how many items a page has, and where the next one begins."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
from aiohttp import web

from gateway.api.problems import Problem

MAX_LIMIT = 200
DEFAULT_LIMIT = 50

T = TypeVar("T")


def read_limit(request: web.Request) -> int:
    """The parameter `limit`. Raises Problem."""
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= MAX_LIMIT:
        raise Problem(400, "PARAMETER_INVALID", f"`limit` is a number from 1 to {MAX_LIMIT}.")
    return int(text)


def write_cursor(of_list: tuple[object, ...], place: Any) -> str:
    """A cursor that goes on after `place` (a JSON value) in the list that `of_list` names: its tenant and its filters."""
    return base64.urlsafe_b64encode(orjson.dumps([place, _digest(of_list)])).decode()


def read_cursor(request: web.Request, of_list: tuple[object, ...], read_place: Callable[[Any], T | None]) -> T | None:
    """The place that the parameter `cursor` goes on after, None where the list begins. Raises Problem.

    `read_place` gives None for a JSON value that is no place of this list: anybody can write a cursor.
    """
    cursor = request.query.get("cursor")
    if cursor is None:
        return None
    try:
        written, digest = orjson.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
    except (ValueError, TypeError):
        written, digest = None, None
    # Bound to its tenant and filters: a cursor of another list is a mistake, not page one.
    place = read_place(written) if digest == _digest(of_list) else None
    if place is None:
        raise Problem(400, "CURSOR_INVALID", "Use a cursor of this very list, or leave it out to begin anew.")
    return place


def _digest(of_list: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(of_list).encode()).hexdigest()[:16]
