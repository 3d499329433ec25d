"""Pages of lists: how many items a page has, and where the next one begins."""

import base64
import hmac
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
from aiohttp import web

from gateway.api.problems import Problem
from gateway.api.services import CALLER, SERVICES

MAX_LIMIT = 200
DEFAULT_LIMIT = 50

_MAC_BYTES = 16
_OWN_KEY = secrets.token_bytes(32)
"""For tenants in which nothing was ever put in force: their lists are empty, and their cursors good on this process only."""

T = TypeVar("T")


def read_limit(request: web.Request) -> int:
    """The parameter `limit`. Raises Problem."""
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= MAX_LIMIT:
        raise Problem(400, "PARAMETER_INVALID", f"`limit` is a number from 1 to {MAX_LIMIT}.")
    return int(text)


def write_cursor(request: web.Request, of_list: tuple[object, ...], place: Any) -> str:
    """A cursor that goes on after `place` (a JSON value) in the list that `of_list` names by its filters."""
    written = orjson.dumps(place)
    return base64.urlsafe_b64encode(_mac(request, of_list, written) + written).decode()


def read_cursor(request: web.Request, of_list: tuple[object, ...], read_place: Callable[[Any], T | None]) -> T | None:
    """The place that the parameter `cursor` goes on after, None where the list begins. Raises Problem.

    `read_place` gives None for a JSON value that is no place of this list.
    """
    cursor = request.query.get("cursor")
    if cursor is None:
        return None
    place = None
    try:
        decoded = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        # Bound to tenant, filters and place: a cursor of another list, or one that somebody wrote, is a mistake, not page one.
        if hmac.compare_digest(decoded[:_MAC_BYTES], _mac(request, of_list, decoded[_MAC_BYTES:])):
            place = read_place(orjson.loads(decoded[_MAC_BYTES:]))
    except ValueError:
        pass
    if place is None:
        raise Problem(400, "CURSOR_INVALID", "Use a cursor of this very list, or leave it out to begin anew.")
    return place


def _mac(request: web.Request, of_list: tuple[object, ...], place: bytes) -> bytes:
    # The tenant's own key: all gateways of a fleet have it, and no other tenant.
    tenant = request[CALLER].tenant
    in_force = request.app[SERVICES].revisions.current(tenant)
    text = repr(("cursor", tenant, of_list, place)).encode()
    return hmac.digest(in_force.digest_key if in_force else _OWN_KEY, text, "sha256")[:_MAC_BYTES]
