"""``gateway policy impact``: which recorded decisions a candidate bundle would turn round."""

import asyncio
import html
import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from gateway.cli.http import CommandFailed, ExitCode, GatewayHttp, speaks_to_gateway
from gateway.cli.terminal import printable, to_json

FAIL_ON = 5
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}
_EFFECTS = "allow|deny|confirm|suppress"
_CONDITION = re.compile(rf"\s*({_EFFECTS})->({_EFFECTS})\s*>\s*(\d{{1,9}})\s*")


def _read_since(ctx: click.Context, option: click.Parameter, value: str) -> timedelta:  # noqa: ARG001 - click's signature
    if not (match := re.fullmatch(r"(\d{1,5})([mhd])", value)):
        raise click.BadParameter("a time such as 30m, 24h or 7d")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def _read_condition(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> list[tuple[str, int]]:  # noqa: ARG001
    found: list[tuple[str, int]] = []
    for each in value:
        if not (match := _CONDITION.fullmatch(each)):
            raise click.BadParameter(f"{each!r} is no condition such as 'deny->allow>0'")
        found.append((f"{match[1]}->{match[2]}", int(match[3])))
    return found


@click.command("impact")
@click.option(
    "--candidate", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True, metavar="DIR", help="The bundle."
)
@click.option("--since", default="7d", show_default=True, callback=_read_since, help="How far back: 30m, 24h, 7d.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="At most so many decisions, the newest.")
@click.option(
    "--fail-on", "conditions", multiple=True, callback=_read_condition, metavar="CONDITION", help="Exit 5 if so, e.g. 'deny->allow>0'."
)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.pass_context
@speaks_to_gateway
def show_impact(
    ctx: click.Context, *, gateway: GatewayHttp, folder: Path, since: timedelta, limit: int, conditions: list[tuple[str, int]], form: str
) -> None:
    """Replay recorded decisions against the bundle in DIR and show what would change (role author).

    What policy said then is compared with what it would say now, on the recorded input. Calls that were refused before
    policy was asked cannot change; calls whose input was not recorded, or redacted, are counted and never guessed.
    """
    from gateway.bundle.folder import read_folder  # noqa: PLC0415 - `--help` needs none

    snapshot = read_folder(folder)
    if snapshot.findings:
        lines = [f"{finding.place}: {finding.code}: {finding.message}" for finding in snapshot.findings[:20]]
        raise CommandFailed("the folder is no bundle:\n" + "\n".join(lines), ExitCode.INVALID)
    try:
        files = {path: content.decode() for path, content in snapshot.files.items()}
    except UnicodeDecodeError as error:
        raise CommandFailed(f"a file of the bundle is not UTF-8 text: {error.reason}", ExitCode.INVALID) from None
    body = {"files": files, "after": (datetime.now(UTC) - since).isoformat(), "limit": limit}
    with _progress(limit) as tell:
        impact = asyncio.run(_replay(gateway, body, tell))
    if form == "json":
        click.echo(to_json(impact, indent=2))
    else:
        click.echo(write_html(impact) if form == "html" else write_text(impact))
    hits = [f"{transition} {impact['transitions'].get(transition, 0)} > {most}" for transition, most in conditions
            if impact["transitions"].get(transition, 0) > most]  # fmt: skip
    if hits:
        click.echo(f"gateway: --fail-on: {', '.join(hits)}", err=True)
        ctx.exit(FAIL_ON)


def _progress(limit: int) -> Any:
    def nothing(_seen: int) -> None:
        """Nobody looks."""

    if not sys.stderr.isatty():
        return nullcontext(nothing)
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only by commands that draw
    from rich.progress import Progress  # noqa: PLC0415

    class Bar(Progress):
        def __enter__(self) -> Callable[[int], None]:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().__enter__()
            task = self.add_task("decisions", total=limit)
            return lambda seen: self.update(task, completed=seen)

    return Bar(console=Console(stderr=True), transient=True)


async def _replay(gateway: GatewayHttp, body: Mapping[str, Any], tell: Callable[[int], None]) -> dict[str, Any]:
    async with gateway.stream("POST", "/v1/policy/impact", body=body) as response:
        async for line in response.content:
            found: dict[str, Any] = json.loads(line)
            if "impact" in found:
                return found["impact"]
            tell(found["seen"])
    raise CommandFailed("the gateway broke off before the end; its log says why", ExitCode.UNREACHABLE)


def _lines(impact: Mapping[str, Any]) -> list[str]:
    told = [
        (
            f"{impact['seen']:,} decisions: {impact['replayed']:,} replayed, {impact['before_policy']:,} refused before policy, "
            f"{impact['not_replayable']:,} not replayable"
        ),
        (
            f"{sum(impact['transitions'].values()):,} would change, {impact['reason_only']:,} only in their reason, "
            f"{impact['unchanged']:,} not at all"
        ),
    ]
    if impact["failures"]:
        told.append(f"{len(impact['failures']):,} tests or cases of the candidate fail")
    return told


def write_text(impact: Mapping[str, Any]) -> str:
    """The report for a terminal."""
    lines = _lines(impact)
    lines += [f"    {failure['file']}:{failure['line']}: {failure['message']}" for failure in impact["failures"]]
    for transition, count in impact["transitions"].items():
        lines += ["", f"{transition}  {count:,}"]
        for name, counts in impact["by"].items():
            of_it = [f"{each[name]} {each['count']:,}" for each in counts if each["transition"] == transition]
            lines.append(f"    by {name}: {', '.join(of_it)}")
        lines += [f"    {_flip(flip)}" for flip in impact["flips"] if flip["transition"] == transition]
    return "\n".join(map(printable, lines))


def _flip(flip: Mapping[str, Any]) -> str:
    who = f"{flip['agent']} for {flip['subject']}"
    return f"{flip['decision_id']} {flip['at']} {flip['tool']} {who}: {flip['then']['reason_code']} -> {flip['now']['reason_code']}"


def write_html(impact: Mapping[str, Any]) -> str:
    """The report as one page without anything from elsewhere."""
    fields = ("transition", "at", "decision_id", "tool", "agent", "subject")
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{_escape(flip[name])}</td>" for name in fields)
        + f"<td>{_escape(flip['then']['reason_code'])}</td><td>{_escape(flip['now']['reason_code'])}</td></tr>\n"
        for flip in impact["flips"]
    )
    counts = "".join(f"<li>{_escape(transition)}: {count:,}</li>" for transition, count in impact["transitions"].items())
    heads = "".join(f"<th>{name}</th>" for name in (*fields, "then", "now"))
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Impact</title>\n'
        "<style>body{font-family:sans-serif}td,th{text-align:left;padding:2px 8px}</style>\n"
        f"<h1>Impact of {_escape(impact['revision'])}</h1>\n"
        + "".join(f"<p>{_escape(line)}</p>\n" for line in _lines(impact))
        + f"<ul>{counts}</ul>\n<table><tr>{heads}</tr>\n{rows}</table></html>"
    )


def _escape(value: object) -> str:
    return html.escape(printable(value))
