"""``gateway policy eval``: may she? A dry run on a gateway, with the stages."""

import json
from typing import Any

import click

from gateway.cli.http import GatewayHttp, speaks_to_gateway
from gateway.cli.terminal import printable, to_json


def _read_object(ctx: click.Context, option: click.Parameter, value: str) -> dict[str, Any]:  # noqa: ARG001 - click's signature
    try:
        found: Any = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter("not a JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]


@click.command("eval")
@click.option("--agent", required=True, help="The agent that would call.")
@click.option("--subject", help="On whose behalf.")
@click.option("--workflow", required=True)
@click.option("--tool", required=True)
@click.option("--args", "arguments", default="{}", callback=_read_object, metavar="JSON", help="The tool's arguments.")
@click.option("--context", default="{}", callback=_read_object, metavar="JSON", help="The workflow's context.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@speaks_to_gateway
def ask(
    *,
    gateway: GatewayHttp,
    agent: str,
    subject: str | None,
    workflow: str,
    tool: str,
    arguments: dict[str, Any],
    context: dict[str, Any],
    form: str,
) -> None:
    """Ask a gateway what it would decide on a call, and at which stage (role author). Nothing is done, nothing is written."""
    body: dict[str, Any] = {"agent": agent, "workflow": workflow, "run_id": "policy-eval", "context": context}
    if subject is not None:
        body["on_behalf_of"] = subject
    found = gateway.post("/v1/evaluations", body | {"call": {"name": tool, "args": arguments}})
    if form == "json":
        click.echo(to_json(found, indent=2))
        return
    policy = f" by policy {found['policy']}" if found["policy"] else ""
    click.echo(printable(f"{found['effect']} {found['reason_code']} at {found['stage']}{policy}"))
    for stage in found["stages"]:
        click.echo(printable(f"    {stage['name']:<13} {stage['outcome']} {stage['ms']} ms"))
    for error in found["details"].get("errors") or ():
        click.echo(printable(f"    args{error['path']}: {error['message']}"))
