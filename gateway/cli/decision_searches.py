"""The query and the window that commands on the decision log take."""

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

import click

from gateway.domain.query_language import read_moment
from gateway.domain.search import SEARCH_HELP

# A query may begin with what looks like an option: -workflow:trip_planning.
TAKES_QUERY: dict[str, Any] = {"ignore_unknown_options": True}

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def searches(command: Callable[_P, _R]) -> Callable[..., _R]:
    """Give a command QUERY, ``--q``, ``--after`` and ``--before``, and call it with `search`, the parameters of a request."""

    @click.argument("query", nargs=-1, metavar="[QUERY]...")
    @click.option("--q", help="The query, instead of QUERY. " + SEARCH_HELP)
    @click.option(
        "--after", callback=_read_time, metavar="TIME", help="At or after this time: RFC 3339, a day (UTC), or 3h ago (s, m, h, d)."
    )
    @click.option("--before", callback=_read_time, metavar="TIME", help="Before this time.")
    @functools.wraps(command)
    def with_search(*args: Any, query: tuple[str, ...], q: str | None, after: str | None, before: str | None, **options: Any) -> _R:
        words = [*([q] if q else []), *query]
        options["search"] = {"q": " ".join(words) or None, "after": after, "before": before}
        return command(*args, **options)

    return with_search


def _read_time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The same moment in UTC; a time without a zone is refused, since nobody knows which it is."""
    if value is None:
        return None
    if match := _AGO.fullmatch(value):
        try:
            moment: datetime | None = datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            moment = None
    else:
        moment = read_moment(value)
    if moment is None:
        raise click.BadParameter(f"{value!r} is not a time with a zone such as 2026-03-01T10:00:00Z, a day such as 2026-03-01, or 3h")
    return moment.isoformat().replace("+00:00", "Z")
