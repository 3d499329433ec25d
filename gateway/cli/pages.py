"""One page of a list, as commands show it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from gateway.cli.terminal import printable, to_json

FORMATS = click.Choice(["table", "json", "ndjson"])

Items = Sequence[Mapping[str, Any]]


def show_page(page: Mapping[str, Any], form: str, draw: Callable[[Items], None], *, empty: str) -> None:
    """Items on stdout: drawn by `draw`, as the page's JSON, or one a line. What to do next, or `empty`, on stderr."""
    items: Items = page["items"]
    match form:
        case "json":
            click.echo(to_json(page, indent=2))
        case "ndjson":
            for item in items:
                click.echo(to_json(item))
        case _ if items:
            draw(items)
        case _:
            pass
    if not items:
        click.echo(empty, err=True)
    if page.get("next_cursor"):
        click.echo(f"More: --cursor {printable(page['next_cursor'])}", err=True)


def cell(value: object) -> str:
    """A value as it stands in a table; absent ones are empty."""
    return "" if value is None else printable(value)
