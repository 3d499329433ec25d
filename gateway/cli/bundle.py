"""``gateway bundle``: push revisions, compare them, put one in force, go back."""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gateway.cli.http import CommandFailed, GatewayHttp, path_segment, speaks_to_gateway
from gateway.cli.pages import FORMATS, Items, cell, draw_table, show_page
from gateway.cli.terminal import WholeSentences, printable, to_json

_COLUMNS = ("active", "revision", "name", "pushed_at", "pushed_by", "activated_at", "activated_by", "note")
_FORM = click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
_REPLACES = click.option(
    "--replaces", metavar="REVISION", help="Only in place of this revision; where another one is in force, nothing changes."
)


@click.group(cls=WholeSentences)
def bundle() -> None:
    """Push bundle revisions and put them in force (role author).

    A revision is a folder's exact content. Pushing checks it and keeps it; activating puts it in force on every gateway of
    the database at once, and is a record. REVISION is `sha256:…`, its beginning where only one kept revision has it, or
    `active`.
    """


@bundle.command("push")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--activate", "is_activated", is_flag=True, help="Put it in force as well.")
@click.option("--note", default="", help="What changed, for those who look at the list.")
@_REPLACES
@_FORM
@speaks_to_gateway
def push_bundle(*, gateway: GatewayHttp, folder: Path, is_activated: bool, note: str, replaces: str | None, form: str) -> None:
    """Check the bundle in DIR on the gateway and keep it; with --activate, put it in force.

    \b
    Example:
      gateway bundle push policies/travel --activate --note "bookings up to 300 USD"
    """  # noqa: D301 - \b keeps click from joining the lines
    from gateway.bundle.folder import read_folder  # noqa: PLC0415 - only this command reads folders

    snapshot = read_folder(folder)
    if snapshot.findings:
        lines = [f"{finding.place}: {finding.code}: {finding.message}" for finding in snapshot.findings[:20]]
        raise CommandFailed("the folder is no bundle:\n" + "\n".join(lines))
    try:
        files = {path: content.decode() for path, content in snapshot.files.items()}
    except UnicodeDecodeError as error:
        raise CommandFailed(f"a file of the bundle is not UTF-8 text: {error.reason}") from None
    if replaces is not None:
        replaces = _whole(gateway, replaces)
    found = gateway.post("/v1/bundles", {"files": files, "note": note})
    for warning in found["warnings"]:
        click.echo(f"warning {printable(warning['code'])}: {printable(warning['message'])}", err=True)
    if is_activated:
        found |= gateway.post(f"/v1/bundles/{found['revision']}/activate", {"replaces": replaces})
    _tell(found, form, "is in force" if is_activated else "is kept; put it in force with: gateway bundle activate")


@bundle.command("list")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Lines a page.")
@click.option("--cursor", help="Go on after an earlier page.")
@click.option("-o", "--output", "form", type=FORMATS, default="table", show_default=True)
@speaks_to_gateway
def list_bundles(*, gateway: GatewayHttp, form: str, limit: int, cursor: str | None) -> None:
    """List kept revisions, newest first; the active one is marked."""
    page = gateway.get("/v1/bundles", {"limit": limit, "cursor": cursor})
    show_page(page, form, _draw, empty="No revision was pushed yet.")


@bundle.command("show")
@click.argument("revision", default="active")
@click.option("--file", "path", help="Print one file of it.")
@_FORM
@speaks_to_gateway
def show_bundle(*, gateway: GatewayHttp, revision: str, path: str | None, form: str) -> None:
    """Show a revision and its files; the active one by default."""
    found = _revision(gateway, revision)
    files: Mapping[str, str] = found["files"]
    if path is not None:
        if path not in files:
            raise CommandFailed(f"the revision has no file {path}")
        click.echo(files[path], nl=False)
    elif form == "json":
        click.echo(to_json(found, indent=2))
    else:
        for name in ("revision", "name", "note", "pushed_at", "pushed_by", "is_active", "activated_at", "activated_by"):
            click.echo(f"{name:<13} {cell(found[name])}")
        for name, text in files.items():
            click.echo(f"{'file':<13} {printable(name)} ({len(text.splitlines())} lines)")


@bundle.command("diff")
@click.argument("old")
@click.argument("new", default="active")
@speaks_to_gateway
def diff_bundles(*, gateway: GatewayHttp, old: str, new: str) -> None:
    """Show what changed in the files from revision OLD to revision NEW (the active one by default), as a unified diff."""
    before, after = _revision(gateway, old)["files"], _revision(gateway, new)["files"]
    is_drawn = sys.stdout.isatty()
    for path in sorted(before.keys() | after.keys()):
        lines = difflib.unified_diff(
            before.get(path, "").splitlines(),
            after.get(path, "").splitlines(),
            f"old/{path}" if path in before else "/dev/null",
            f"new/{path}" if path in after else "/dev/null",
            lineterm="",
        )
        for line in lines:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1]) if is_drawn else None
            click.echo(click.style(printable(line), fg=colour))
    if before == after:
        click.echo("No file differs.", err=True)


@bundle.command("activate")
@click.argument("revision")
@_REPLACES
@_FORM
@speaks_to_gateway
def activate_bundle(*, gateway: GatewayHttp, revision: str, replaces: str | None, form: str) -> None:
    """Put a kept revision in force on every gateway, after its checks, tests and cases passed once more."""
    revision, replaces = _whole(gateway, revision), None if replaces is None else _whole(gateway, replaces)
    _tell(gateway.post(f"/v1/bundles/{path_segment(revision)}/activate", {"replaces": replaces}), form, "is in force")


@bundle.command("rollback")
@_REPLACES
@_FORM
@speaks_to_gateway
def roll_back(*, gateway: GatewayHttp, replaces: str | None, form: str) -> None:
    """Put the revision in force again that was so before the active one."""
    replaces = None if replaces is None else _whole(gateway, replaces)
    _tell(gateway.post("/v1/bundles/active/rollback", {"replaces": replaces}), form, "is in force")


def _revision(gateway: GatewayHttp, revision: str) -> dict[str, Any]:
    return gateway.get(f"/v1/bundles/{path_segment(_whole(gateway, revision))}")


def _whole(gateway: GatewayHttp, revision: str) -> str:
    """The whole name of a revision that may be given by its beginning."""
    digest = revision.removeprefix("sha256:")
    if revision == "active" or len(digest) == 64:
        return revision if revision == "active" else f"sha256:{digest}"
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = gateway.get("/v1/bundles", {"limit": 200, "cursor": cursor})
        found += [item["revision"] for item in page["items"] if item["revision"].removeprefix("sha256:").startswith(digest)]
        if (cursor := page["next_cursor"]) is None:
            break
    if len(found) != 1:
        raise CommandFailed(f"{len(found)} kept revisions begin with {revision!r}; see: gateway bundle list")
    return found[0]


def _tell(found: Mapping[str, Any], form: str, what: str) -> None:
    if form == "json":
        click.echo(to_json(found, indent=2))
        return
    click.echo(printable(found["revision"]))
    replaced = f"; it replaced {printable(found['replaced'])}" if found.get("replaced") else ""
    click.echo(f"The revision {what}{replaced}.", err=True)


def _draw(items: Items) -> None:
    draw_table([_shown(item) for item in items], _COLUMNS, whole=("pushed_at", "activated_at"))


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    return (
        dict(item)
        | {
            "active": "●" if item["is_active"] else "",
            "revision": str(item["revision"])[:19],  # as much as tells them apart; -o json has the whole
            "pushed_at": str(item["pushed_at"])[:19],
            "activated_at": str(item["activated_at"] or "")[:19],
        }
    )
