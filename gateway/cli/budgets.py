"""``gateway budgets``: what was drawn on each budget, and what is left."""

import sys
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import click

from gateway.cli.http import GatewayHttp, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, cell, show_page
from gateway.cli.terminal import WholeSentences, show

_AMOUNTS = ("limit", "reserved", "spent", "available")
_COLUMNS = ("name", "scope", "period", "unit", *_AMOUNTS)
_BAR_CELLS = 10


@click.group(cls=WholeSentences)
def budgets() -> None:
    """See what was drawn on budgets (role operator)."""


@budgets.command("list")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_budgets(*, gateway: GatewayHttp, form: str, limit: int, cursor: str | None) -> None:
    """List budgets that were drawn on: one line a budget, scope and window.

    Reserved is held by calls that run or are in doubt; spent is booked. Amounts are exact decimals of the unit. A budget
    without a limit is one that the active bundle no longer has.

    \b
    Example:
      gateway budgets list -o json
    """  # noqa: D301 - \b keeps click from joining the lines
    page = gateway.get("/v1/budgets", {"limit": limit, "cursor": cursor})
    show_page(page, form, _draw, empty="No budget was drawn on yet.")


def _draw(items: Items) -> None:
    from rich.table import Table  # noqa: PLC0415 - rich is loaded only by commands that draw

    table = Table(box=None, pad_edge=False)
    for column in (*_COLUMNS, "used"):
        table.add_column(column, overflow="fold", justify="right" if column in _AMOUNTS else "left", no_wrap=column == "used")
    for item in items:
        amounts = [cell(item.get(column)) for column in _AMOUNTS]
        table.add_row(
            cell(item.get("name")),
            cell(_scope_text(item.get("scope"))),
            cell(item.get("period")),
            cell(item.get("unit")),
            *amounts,
            _use_text(item, is_drawn=sys.stdout.isatty()),
        )
    show(table)


def _scope_text(scope: Any) -> str:
    """The parts of a scope; a run is `agent/run`. A budget of the whole tenant has none."""
    if not isinstance(scope, list):
        return ""
    parts = cast("list[Any]", scope)
    return ", ".join("/".join(map(str, cast("list[Any]", part))) if isinstance(part, list) else str(part) for part in parts) or "everything"


def _use_text(item: Mapping[str, Any], *, is_drawn: bool) -> str:
    """What is held and spent, as a share of the limit; nothing where there is no limit to compare with."""
    try:
        limit, used = Decimal(item["limit"]), Decimal(item["reserved"]) + Decimal(item["spent"])
    except (InvalidOperation, TypeError):
        return ""
    share = used / limit if limit else Decimal(1)
    # Down, so that only a budget with nothing left is at 100 %.
    text = f"{int(share * 100):>3} %"
    if not is_drawn:
        return text.strip()
    filled = min(_BAR_CELLS, int(share * _BAR_CELLS))
    return "█" * filled + "░" * (_BAR_CELLS - filled) + f" {text}"
