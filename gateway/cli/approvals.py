"""``gateway approvals``: what waits for a person, exactly what would run, and the person's answer."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gateway.cli.http import GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, draw_table, show_page
from gateway.cli.terminal import WholeSentences, show, to_json
from gateway.domain.approvals import ApprovalState
from gateway.domain.visible import make_visible

_COLUMNS = ("requested_at", "approval_id", "state", "risk", "summary", "rule", "expires_at")
_ANSWER_FORMATS = click.Choice(["table", "json"])


@click.group(cls=WholeSentences)
def approvals() -> None:
    """See what waits for a person and answer it (role approver).

    A yes is good for exactly the call that is shown, once, until it expires. Without an answer the request expires to a no.
    """


@approvals.command("list")
@click.option(
    "--state",
    type=click.Choice([state.value for state in ApprovalState]),
    default=ApprovalState.PENDING.value,
    show_default=True,
    help="Approvals in this state.",
)
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_approvals(*, gateway: GatewayHttp, form: str, state: str, limit: int, cursor: str | None) -> None:
    """List the approvals that you may answer or could have, one page, oldest first."""
    page = gateway.get("/v1/approvals", {"state": state, "limit": limit, "cursor": cursor})
    show_page(page, form, _draw, empty=f"No approvals are {state}.")


@approvals.command("show")
@click.argument("approval_id", metavar="ID")
@click.option("-o", "--output", "form", type=_ANSWER_FORMATS, default="table", show_default=True)
@speaks_to_gateway
def show_approval(*, gateway: GatewayHttp, approval_id: str, form: str) -> None:
    """Show one approval: who asks for what and why, and exactly the arguments that would run."""
    _show(gateway.get(f"/v1/approvals/{path_segment(approval_id)}"), form)


@approvals.command("approve")
@click.argument("approval_id", metavar="ID")
@click.option("--comment", help="One line for the record.")
@click.option("-o", "--output", "form", type=_ANSWER_FORMATS, default="table", show_default=True)
@speaks_to_gateway
def approve_call(*, gateway: GatewayHttp, approval_id: str, comment: str | None, form: str) -> None:
    """Agree to exactly the call that `gateway approvals show ID` shows; it may then run once."""
    _show(gateway.post(f"/v1/approvals/{path_segment(approval_id)}/approve", {"comment": comment}), form)


@approvals.command("deny")
@click.argument("approval_id", metavar="ID")
@click.option("--comment", required=True, help="Why not: one line, told to the agent and its model.")
@click.option("--suggest", metavar="JSON", help="Arguments that you would rather see, as a JSON object, or @FILE; told to the agent.")
@click.option("-o", "--output", "form", type=_ANSWER_FORMATS, default="table", show_default=True)
@speaks_to_gateway
def deny_call(*, gateway: GatewayHttp, approval_id: str, comment: str, suggest: str | None, form: str) -> None:
    """Say no; the agent gets the comment, and perhaps arguments that it may propose instead.

    \b
    Example:
      gateway approvals deny 0199a5… --comment "over the budget" --suggest '{"hotelId": "h2", "itineraryId": "it-1", "totalUsd": 150}'
    """  # noqa: D301 - \b keeps click from joining the lines
    body: dict[str, Any] = {"comment": comment}
    if suggest is not None:
        body["suggested_args"] = _read_json(suggest)
    _show(gateway.post(f"/v1/approvals/{path_segment(approval_id)}/deny", body), form)


@approvals.command("watch")
@click.option("--every", type=click.IntRange(1, 3600), default=2, show_default=True, metavar="SECONDS", help="Between two looks.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many approvals; without it, when interrupted.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "ndjson"]), default="table", show_default=True)
@speaks_to_gateway
def watch_approvals(*, gateway: GatewayHttp, form: str, every: int, count: int | None) -> None:
    """Show each approval once as soon as it waits for you, until interrupted."""
    seen: set[str] = set()
    while count is None or len(seen) < count:
        waiting = [item for item in _all_pending(gateway) if item["may_answer"]]
        for item in waiting:
            if item["approval_id"] not in seen and (count is None or len(seen) < count):
                seen.add(item["approval_id"])
                _show(item, "table") if form == "table" else click.echo(to_json(item))
        if count is None:
            seen &= {item["approval_id"] for item in waiting}  # what no longer waits is forgotten
        if count is None or len(seen) < count:
            time.sleep(every)


def _all_pending(gateway: GatewayHttp) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = gateway.get("/v1/approvals", {"limit": 200, "cursor": cursor})
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def _read_json(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise click.UsageError(f"--suggest: cannot read {text[1:]}: {error.strerror}") from None
    except ValueError:
        raise click.UsageError("--suggest is not JSON") from None


def _draw(items: Items) -> None:
    draw_table(items, _COLUMNS, whole=("requested_at", "approval_id", "expires_at"))


def _show(item: Mapping[str, Any], form: str) -> None:
    from rich.table import Table  # noqa: PLC0415 - as above

    if form == "json":
        click.echo(to_json(item, indent=2))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for word, text in _facts(item):
        table.add_row(make_visible(word), make_visible(text))
    show(table)


def _facts(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The approval in the words of a reader; what it does not say is left out."""
    requester, reason = item["requester"], item["reason"]
    people = "" if item["people_needed"] == 1 else f", {item['people_needed']} persons"
    facts = [
        ("approval", f"{item['approval_id']} ({item['state']})"),
        ("what", f"{item['title']}: {item['tool']} ({item['risk']})"),
        ("who", f"agent {requester['agent']} on behalf of {requester['on_behalf_of']}, {requester['workflow']}, run {requester['run_id']}"),
        ("why", " ".join(str(part) for part in (reason["code"], reason["policy"] and f"by policy {reason['policy']}") if part)),
        *((f"  {name}", _argument(value)) for name, value in item["arguments"].items()),
        *(("  !", f"{pointer} is redacted and shown as a digest") for pointer in item["redacted"]),
        *(("  !", f"{mark['pointer']} has {mark['length']} characters: {', '.join(mark['kinds'])}") for mark in item["marked"]),
        ("context", to_json(item["context"]) if item["context"] else ""),
        ("cost", ", ".join(f"{amount} {unit}" for unit, amount in item["cost"].items())),
        ("rule", f"{item['rule']} with {item['permission']}{people}"),
        *(("answer", f"{given['person']}: {given['answer']} {given['comment'] or ''}".rstrip()) for given in item["answers"]),
        ("suggested", to_json(item["suggested_args"]) if item["suggested_args"] else ""),
        ("used by", item["consumed_by"] or ""),
        ("expires", item["expires_at"]),
    ]
    return [(word, text) for word, text in facts if text]


def _argument(value: Any) -> str:
    # Whole, however long: what a person agrees to hides nothing.
    return json.dumps(value, ensure_ascii=False)
