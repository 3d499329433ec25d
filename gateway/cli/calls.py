"""``gateway calls``: which calls are in which state, and the end of a doubt about one."""

import click

from gateway.cli.http import GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, draw_table, show_page
from gateway.cli.terminal import WholeSentences, printable, to_json
from gateway.domain.outcome import CallState

_COLUMNS = ("admitted_at", "decision_id", "tool", "replay", "agent", "subject", "run_id", "attempts", "status", "reason_code")


@click.group(cls=WholeSentences)
def calls() -> None:
    """See calls by state and end doubts about them (role operator).

    A call is in doubt where a request was sent and its answer was lost: it may have happened. The gateway resolves what
    the tool lets it resolve; the rest (`replay: never`) waits for a person who looks and says what is true.
    """


@calls.command("list")
@click.option(
    "--state", type=click.Choice([state.value for state in CallState]), default="in_doubt", show_default=True, help="Calls in this state."
)
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_calls(*, gateway: GatewayHttp, form: str, state: str, limit: int, cursor: str | None) -> None:
    """List calls in a state, one page, oldest first; never their arguments or results.

    \b
    Example:
      gateway calls list --state in_doubt -o ndjson
    """  # noqa: D301 - \b keeps click from joining the lines
    page = gateway.get("/v1/calls", {"state": state, "limit": limit, "cursor": cursor})
    show_page(page, form, _draw, empty=f"No calls are {state.replace('_', ' ')}.")


@calls.command("resolve")
@click.argument("decision_id", metavar="ID")
@click.option(
    "--outcome",
    type=click.Choice(["happened", "did-not-happen"]),
    required=True,
    help="What is true of the call. It did not happen: its budgets are given back and it may be proposed again.",
)
@click.option("--evidence", required=True, help="How you know, for the record: one line of 10 to 2000 characters. No model sees it.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@speaks_to_gateway
def resolve_call(*, gateway: GatewayHttp, decision_id: str, outcome: str, evidence: str, form: str) -> None:
    """End the doubt about the call ID, with evidence; once, and only while it is in doubt.

    Look before you answer: what you say is booked, and a call that "did not happen" may be made again.

    \b
    Example:
      gateway calls resolve 0199a5… --outcome happened --evidence "booking B-17 stands in the hotel's extranet"
    """  # noqa: D301 - as above
    body = {"outcome": outcome.replace("-", "_"), "evidence": evidence}
    found = gateway.post(f"/v1/calls/{path_segment(decision_id)}/resolve", body)
    if form == "json":
        click.echo(to_json(found, indent=2))
    else:
        click.echo(f"{printable(found['decision_id'])} {printable(found['state'])}")


def _draw(items: Items) -> None:
    draw_table(items, _COLUMNS, whole=("admitted_at", "decision_id"))
