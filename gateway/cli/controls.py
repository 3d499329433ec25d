"""``gateway controls``: take an agent, a tool or the whole tenant out of service at once, and put it back."""

from collections.abc import Callable
from typing import Any

import click

from gateway.cli.http import GatewayHttp, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, draw_table, show_page
from gateway.cli.terminal import WholeSentences

_COLUMNS = ("kind", "name", "reason", "restricted_by", "restricted_at")
_REASON = click.option("--reason", required=True, help="Why, for the record: one line of 3 to 500 characters.")


@click.group(cls=WholeSentences)
def controls() -> None:
    """Stop agents, tools or everything at once (role operator).

    It holds on every gateway of the database before the command ends: nothing is admitted afterwards. Calls that run already
    end as they would. Each change is a record.
    """


@controls.command("list")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_controls(*, gateway: GatewayHttp, form: str) -> None:
    """List what is out of service, and why."""
    show_page(gateway.get("/v1/controls"), form, _draw, empty="Everything is in service.")


def _command(action: str, what: str | None, sentence: str, told: str) -> Callable[..., Any]:
    @controls.command(action, help=sentence)
    @_REASON
    @speaks_to_gateway
    def change(*, gateway: GatewayHttp, reason: str, name: str = "") -> None:
        found = gateway.post("/v1/controls", {"action": action, "name": name, "reason": reason})
        subject = f"{what} {name}" if what else "the tenant"
        click.echo(f"{subject} {'is' if found['changed'] else 'was already'} {told}")

    if what is not None:
        change.params.insert(0, click.Argument(["name"], metavar=what.upper()))
    return change


_command("suspend", "agent", "Refuse every call of AGENT (AGENT_SUSPENDED) until it is resumed.", "suspended")
_command("resume", "agent", "Let AGENT call again.", "in service")
_command("disable", "tool", "Refuse every call of TOOL (TOOL_DISABLED) until it is enabled.", "disabled")
_command("enable", "tool", "Let TOOL be called again.", "in service")
_command("freeze", None, "Refuse every call of the tenant (TENANT_FROZEN) until it is unfrozen.", "frozen")
_command("unfreeze", None, "Let the tenant's agents call again.", "in service")


def _draw(items: Items) -> None:
    draw_table(items, _COLUMNS, whole=("restricted_at",))
