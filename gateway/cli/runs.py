"""``gateway runs``: runs whose model loop the gateway owns, and the end of any run."""

import asyncio
from typing import Any

import click

from gateway.cli.http import GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, draw_table, show_page
from gateway.cli.streams import follow_run
from gateway.cli.terminal import WholeSentences, printable, printable_lines, to_json

_COLUMNS = ("started_at", "run_id", "state", "reason_code", "workflow", "on_behalf_of", "model", "rounds", "tokens")
_STATES = click.Choice(["running", "answered", "failed", "cancelled"])
_FORM = click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group(cls=WholeSentences)
def runs() -> None:
    """See runs, follow their events, go on with them, cancel them (role agent)."""


@runs.command("list")
@click.option("--state", type=_STATES, help="Runs in this state only.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_runs(*, gateway: GatewayHttp, form: str, state: str | None, limit: int, cursor: str | None) -> None:
    """List this agent's runs whose loop a gateway owns, one page, newest first."""
    show_page(gateway.get("/v1/runs", {"state": state, "limit": limit, "cursor": cursor}), form, _draw, empty="No runs.")


@runs.command("show")
@click.argument("run_id", metavar="ID")
@_FORM
@speaks_to_gateway
def show_run(*, gateway: GatewayHttp, run_id: str, form: str) -> None:
    """Show the run ID as it stands; also a run whose loop the agent itself owns."""
    _show(gateway.get(f"/v1/runs/{path_segment(run_id)}"), form)


@runs.command("events")
@click.argument("run_id", metavar="ID")
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, help="Leave out events up to this id.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "ndjson"]), default="table", show_default=True)
@speaks_to_gateway
def show_events(*, gateway: GatewayHttp, run_id: str, after: int, form: str) -> None:
    """Print the events of the run ID, as they come, until its end."""
    asyncio.run(_print_events(gateway, run_id, after, form, method="GET", what="events"))


@runs.command("resume")
@click.argument("run_id", metavar="ID")
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, help="Leave out events up to this id.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "ndjson"]), default="table", show_default=True)
@speaks_to_gateway
def resume_run(*, gateway: GatewayHttp, run_id: str, after: int, form: str) -> None:
    """Go on with the run ID, which ended for now (such as MODEL_UNAVAILABLE), and print its events."""
    asyncio.run(_print_events(gateway, run_id, after, form, method="POST", what="resume"))


@runs.command("cancel")
@click.argument("run_id", metavar="ID")
@_FORM
@speaks_to_gateway
def cancel_run(*, gateway: GatewayHttp, run_id: str, form: str) -> None:
    """Cancel the run ID, whoever owns its loop: every further call of it is refused (RUN_CANCELLED)."""
    _show(gateway.post(f"/v1/runs/{path_segment(run_id)}/cancel", {}), form)


async def _print_events(gateway: GatewayHttp, run_id: str, after: int, form: str, *, method: str, what: str) -> None:
    async for event in follow_run(gateway, run_id, after=after, method=method, what=what):
        if form == "ndjson":
            click.echo(to_json({"id": event.id, "type": event.type} | event.data))
        else:
            facts = {name: value for name, value in event.data.items() if name != "at"}
            click.echo(f"{printable(event.data['at'])}  {event.id:>4}  {printable(event.type):<18} {to_json(facts)}")


def _show(run: dict[str, Any], form: str) -> None:
    if form == "json":
        click.echo(to_json(run, indent=2))
        return
    for name, value in run.items():
        if value is not None and name != "answer":
            click.echo(f"{name:<14} {printable(value)}")
    if run.get("answer"):
        click.echo("\n" + printable_lines(run["answer"]))


def _draw(items: Items) -> None:
    draw_table(items, _COLUMNS, whole=("started_at", "run_id"))
