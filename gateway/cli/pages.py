"""One page of a list, as commands show it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click

from gateway.cli.terminal import printable, show, to_json

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


def draw_table(items: Items, columns: Sequence[str], *, whole: Collection[str] = ()) -> None:
    """Items as a table: a line an item, a cell a column; those of `whole` columns are never folded."""
    from rich.table import Table  # noqa: PLC0415 - rich is loaded only by commands that draw

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for item in items:
        table.add_row(*(cell(item.get(column)) for column in columns))
    show(table)


def cell(value: object) -> str:
    """A value as it stands in a table; absent ones are empty."""
    return "" if value is None else printable(value)
