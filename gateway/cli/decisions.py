"""``gateway decisions``: read the decision log as an auditor."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gateway.cli.decision_exports import export_decisions
from gateway.cli.decision_searches import TAKES_QUERY, searches
from gateway.cli.decision_tails import tail_decisions
from gateway.cli.http import GatewayHttp, Params, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, show_page
from gateway.cli.terminal import WholeSentences, printable, show, to_json
from gateway.domain.reasons import Effect
from gateway.domain.search import PIVOTS, SEARCH_FIELDS

_COLUMNS = ("at", "kind", "decision_id", "agent", "subject", "tool", "effect", "reason_code", "status")
_LONGEST_PAYLOAD = 300


@click.group(cls=WholeSentences)
def decisions() -> None:
    """Search and read the decision log (role auditor)."""


@decisions.command("get")
@click.argument("decision_id", metavar="ID")
@click.option(
    "--reveal", "reason", metavar="REASON", help="Show the recorded arguments and results too. The reason is recorded with your name."
)
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def get_decision(*, gateway: GatewayHttp, decision_id: str, reason: str | None, form: str) -> None:
    """Show one decision: who, what, why, effect, timings, outcome and what is linked to it."""
    found = gateway.get(f"/v1/decisions/{path_segment(decision_id)}")
    if reason is not None:
        found |= gateway.post(f"/v1/decisions/{path_segment(decision_id)}/reveal", {"reason": reason})
    if form == "table":
        show_decision(found)
    else:
        click.echo(to_json(found, indent=2 if form == "json" else None))


@decisions.command("list", context_settings=TAKES_QUERY)
@searches
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Records a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_decisions(*, gateway: GatewayHttp, form: str, limit: int, cursor: str | None, search: Params) -> None:
    """List records of the decision log, one page, newest first."""
    items: list[Mapping[str, Any]] = []
    while True:
        page = gateway.get("/v1/decisions", {**search, "limit": limit - len(items), "cursor": cursor})
        items += page["items"]
        cursor = page["next_cursor"]
        # Where matches are rare, a page of the gateway comes back before it is full.
        if cursor is None or len(items) >= limit:
            break
    show_page({"items": items, "next_cursor": cursor}, form, _draw, empty="No records.")


@decisions.command("stats", context_settings=TAKES_QUERY)
@searches
@click.option(
    "--by", "fields", type=click.Choice(list(SEARCH_FIELDS)), multiple=True, default=PIVOTS, show_default=True, help="Count by it."
)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@speaks_to_gateway
def count_decisions(*, gateway: GatewayHttp, form: str, fields: Sequence[str], search: Params) -> None:
    """Count decisions by agent, subject, tool or any other field, each split by effect."""
    # Outcomes and replays would count their decision again; who asks for them names their kind.
    query = search["q"] if "kind:" in str(search["q"] or "") else f"kind:decision {search['q'] or ''}".strip()
    page = gateway.get("/v1/decisions", {**search, "q": query, "limit": 1, "facets": ",".join(dict.fromkeys(fields))})
    if form == "json":
        click.echo(to_json(page["facets"], indent=2))
    else:
        _draw_counts(page["facets"])


@decisions.command("timeline")
@click.argument("run_id", metavar="RUN")
@click.option("--agent", help="The agent whose run it is, where several have one of this name.")
@click.option("--limit", type=click.IntRange(1, 200), default=200, show_default=True, help="Records a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def show_timeline(*, gateway: GatewayHttp, run_id: str, form: str, **query: str | int | None) -> None:
    """Show what happened in a run, oldest first."""
    page = gateway.get(f"/v1/runs/{path_segment(run_id)}/timeline", query)
    show_page(page, form, _draw, empty="No records.")


decisions.add_command(export_decisions)
decisions.add_command(tail_decisions)


def _draw_counts(facets: Mapping[str, Any]) -> None:
    from rich.table import Table  # noqa: PLC0415 - rich is loaded only by commands that draw

    effects = [effect for effect in (*Effect, "none") if effect in facets["effects"]]
    click.echo(f"{facets['counted']:,} records: " + ", ".join(f"{facets['effects'][effect]:,} {effect}" for effect in effects))
    for word, facet in facets["fields"].items():
        table = Table(box=None, pad_edge=False)
        table.add_column(word, overflow="fold")
        for column in ("records", *effects):
            table.add_column(column, justify="right", no_wrap=True)
        for found in facet["values"]:
            counts = (f"{found['effects'][effect]:,}" if effect in found["effects"] else "" for effect in effects)
            table.add_row(printable(found["value"]), f"{found['count']:,}", *counts)
        click.echo()
        show(table)
        if facet["others"]:
            click.echo(f"and {facet['others']:,} other values")
    if not facets["is_complete"]:
        click.echo("Only the newest of the matching records were counted.", err=True)


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
    payloads: dict[str, dict[str, Any]] | list[str] = found.get("payloads") or {}
    if not isinstance(payloads, dict):
        table.add_row("recorded", f"{', '.join(map(printable, payloads))} (see them with --reveal REASON)")
        payloads = {}
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
