"""``gateway decisions``: read the decision log as an auditor."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from gateway.cli.http import GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, show_page
from gateway.cli.terminal import WholeSentences, printable, show, to_json
from gateway.domain.search import SEARCH_HELP

_COLUMNS = ("at", "kind", "decision_id", "agent", "subject", "tool", "effect", "reason_code", "status")
_LONGEST_PAYLOAD = 300


def _read_time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The same moment in UTC; a time without a zone is refused, since nobody knows which it is."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time such as 2026-03-01T10:00:00Z") from None
    if time.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no zone; write 2026-03-01T10:00:00Z or +01:00")
    try:
        time = time.astimezone(UTC)
    except OverflowError:
        raise click.BadParameter(f"{value!r} is outside the years that can be calculated with") from None
    return time.isoformat().replace("+00:00", "Z")


@click.group(cls=WholeSentences)
def decisions() -> None:
    """Search and read the decision log (role auditor)."""


@decisions.command("get")
@click.argument("decision_id", metavar="ID")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def get_decision(*, gateway: GatewayHttp, decision_id: str, form: str) -> None:
    """Show one decision: who, what, why, effect, timings, outcome and what is linked to it."""
    found = gateway.get(f"/v1/decisions/{path_segment(decision_id)}")
    if form == "table":
        show_decision(found)
    else:
        click.echo(to_json(found, indent=2 if form == "json" else None))


@decisions.command("list")
@click.option("--q", help=SEARCH_HELP)
@click.option("--after", callback=_read_time, metavar="TIME", help="At or after this time (RFC 3339); earlier than --before.")
@click.option("--before", callback=_read_time, metavar="TIME", help="Before this time (RFC 3339).")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Records a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_decisions(*, gateway: GatewayHttp, form: str, **query: str | int | None) -> None:
    """List records of the decision log, one page, newest first."""
    page = gateway.get("/v1/decisions", query)
    show_page(page, form, _draw, empty="No records.")


def _draw(items: Items) -> None:
    from rich.table import Table  # noqa: PLC0415 - rich is loaded only by commands that draw

    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column in ("at", "decision_id"))
    for item in items:
        table.add_row(*(_text(item.get(column)) for column in _COLUMNS))
    show(table)


def show_decision(found: Mapping[str, Any]) -> None:
    """Draw ``{record, linked, payloads}`` for a person."""
    from rich.table import Table  # noqa: PLC0415 - rich is loaded only by commands that draw

    record: dict[str, Any] = found["record"]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for word, text in _facts(record):
        table.add_row(word, text)
    for other in found.get("linked") or ():
        table.add_row(
            "linked", f"{_text(other.get('kind'))} {_text(other.get('decision_id'))}: {_ending(other)}, at {_text(other.get('at'))}"
        )
    payloads: dict[str, dict[str, Any]] = found.get("payloads") or {}
    for kind, payload in payloads.items():
        for name, value in payload.items():
            table.add_row("recorded", f"{printable(kind)}.{printable(name)} {_clip(to_json(value))}")
    show(table)


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_PAYLOAD else text[:_LONGEST_PAYLOAD] + "… (all of it with -o json)"


def _facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The record in the words of a reader; what it does not say is left out."""
    stages = (
        f"{_text(stage.get('name'))} {_text(stage.get('outcome'))} {_text(stage.get('ms'))} ms" for stage in record.get("stages") or ()
    )
    rules = (
        f"{_text(rule.get('effect'))} {_text(rule.get('reason_code'))} ({_text(rule.get('policy'))})" for rule in record.get("rules") or ()
    )
    told: dict[str, Any] = record.get("outcome") or {}
    outcome = {name: value for name, value in told.items() if value}
    facts = [
        ("decision", f"{_text(record.get('decision_id'))} ({_text(record.get('kind'))}, position {_text(record.get('position'))})"),
        ("at", _text(record.get("at"))),
        ("who", _joined(record, agent="agent {}", subject="on behalf of {}", tenant="in tenant {}")),
        ("what", _joined(record, tool="{}", risk="({})", workflow="in {}", run_id="run {}", call_id="call {}")),
        (
            "arguments",
            " ".join([", ".join(map(printable, record.get("argument_keys") or ())), _text(record.get("arguments_digest"))]).strip(),
        ),
        ("effect", _joined(record, effect="{}", status="answered {}")),
        ("why", _joined(record, reason_code="{}", stage="at {}", policy="by policy {}", engine="in engine {}")),
        ("rules", "; ".join(rules)),
        ("revision", _text(record.get("revision"))),
        ("stages", " · ".join(stages)),
        ("outcome", to_json(outcome) if outcome else ""),
        ("budgets", to_json(record["budgets"]) if record.get("budgets") else ""),
        ("approval", _text(record.get("approval_id"))),
        ("trace", _text(record.get("trace_id"))),
    ]
    return [(word, text) for word, text in facts if text]


def _ending(record: Mapping[str, Any]) -> str:
    return _joined(record, effect="{}", status="{}", reason_code="{}") or "no outcome"


def _joined(record: Mapping[str, Any], **phrases: str) -> str:
    """The phrases whose fields the record has, one after the other."""
    return " ".join(phrase.format(_text(record[name])) for name, phrase in phrases.items() if record.get(name) is not None)


def _text(value: object) -> str:
    return "" if value is None else printable(value)
