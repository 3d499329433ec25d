"""``gateway decisions export``: all records of a search into a folder, with a manifest; what was interrupted goes on."""

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gateway.cli.decision_searches import TAKES_QUERY, searches
from gateway.cli.export_folder import FORMS, MANIFEST, ExportFolder, State, read_state
from gateway.cli.http import CommandFailed, ExitCode, GatewayHttp, Params, speaks_to_gateway
from gateway.cli.terminal import printable

CHUNK = 1 << 18
SAVE_S = 1.0
PLAIN_S = 10.0
ATTEMPTS = 5
"""Connections in a row that may break without a single record."""

Tell = Callable[[int], None]
"""Says how far it is: the next position."""


@click.command("export", context_settings=TAKES_QUERY)
@searches
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="DIR", help="The folder: new, or of this same export."
)
@click.option(
    "--format", "form", type=click.Choice(list(FORMS)), default="ndjson", show_default=True, help="ndjson holds the exact stored bytes."
)
@click.option("--progress", type=click.Choice(["auto", "plain", "none"]), default="auto", show_default=True, help="On stderr.")
@speaks_to_gateway
def export_decisions(*, gateway: GatewayHttp, out: Path, form: str, progress: str, search: Params) -> None:
    """Export all records of a query, oldest first, into a folder with a manifest. Repeat the command to go on after an interruption."""
    folder = _open(out, {**search, "format": form})
    began = time.monotonic()
    try:
        with _shown(folder, progress) as tell:
            asyncio.run(_export(gateway, folder, tell))
        checkpoint = _checkpoint(gateway, out)
        manifest = folder.finish({"checkpoint": checkpoint})
    except KeyboardInterrupt:
        folder.save()
        again = shlex.join(["gateway", *sys.argv[1:]])
        raise CommandFailed(f"interrupted after {folder.state.count:,} records; go on with: {again}", ExitCode.INTERRUPTED) from None
    except CommandFailed:
        folder.save()
        raise
    finally:
        folder.close()
    took_s = time.monotonic() - began
    click.echo(f"{folder.state.count:,} records in {took_s:.1f} s", err=True)
    if checkpoint is None:
        click.echo("Nothing is signed yet: see `gateway audit checkpoint`.", err=True)
    click.echo(str(manifest))


def _open(out: Path, asked: dict[str, Any]) -> ExportFolder:
    if (out / MANIFEST).exists():
        raise CommandFailed(f"{out} holds a complete export already; choose another folder", ExitCode.USAGE)
    state = read_state(out) if out.exists() else None
    if state is None:
        if out.exists() and any(out.iterdir()):
            raise CommandFailed(f"{out} is not empty", ExitCode.USAGE)
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = State(asked=asked)
    elif state.asked != asked:
        other = ", ".join(f"{name} {state.asked.get(name)!r}" for name in asked if asked[name] != state.asked.get(name))
        raise CommandFailed(f"{out} holds an interrupted export of something else: {other}", ExitCode.USAGE)
    folder = ExportFolder(out, state)
    folder.save()
    return folder


async def _export(gateway: GatewayHttp, folder: ExportFolder, tell: Tell) -> None:
    state, left = folder.state, ATTEMPTS
    while True:
        before = state.next_position
        try:
            await _receive(gateway, folder, tell)
        except CommandFailed as failed:
            folder.save()
            left = ATTEMPTS if state.next_position > before else left - 1
            if failed.exit_code is not ExitCode.UNREACHABLE or left == 0:
                raise
            await asyncio.sleep(1)
        else:
            return


async def _receive(gateway: GatewayHttp, folder: ExportFolder, tell: Tell) -> None:
    state = folder.state
    # The first request alone asks for the header line; what is gone on with ends where the first one ended.
    params = {**state.asked, "from_position": state.next_position if state.bytes else None, "to_position": state.to_position}
    async with gateway.stream("GET", "/v1/decisions/export", params=params) as response:
        folder.begin_again()
        state.export_ids.append(response.headers["Gateway-Export-Id"])
        if state.to_position is None:
            state.to_position = int(response.headers["Gateway-Export-To"])
        folder.save()
        saved = time.monotonic()
        async for chunk in response.content.iter_chunked(CHUNK):
            last = folder.take(chunk)
            if last is not None:
                tell(last + 1)
            if time.monotonic() - saved >= SAVE_S:
                folder.save()
                saved = time.monotonic()
    tell(state.to_position)


def _checkpoint(gateway: GatewayHttp, out: Path) -> str | None:
    """Write the last signed checkpoint beside the records; None where the gateway has signed none yet."""
    note = gateway.get("/v1/log/checkpoint")["checkpoint"]
    if note is None:
        return None
    (out / "checkpoint").write_text(note, encoding="utf-8")
    return "checkpoint"


@contextmanager
def _shown(folder: ExportFolder, progress: str) -> Generator[Tell]:
    if progress == "none":
        yield lambda _: None
    elif progress == "auto" and sys.stderr.isatty():
        with _bar(folder) as tell:
            yield tell
    else:
        said = time.monotonic()

        def tell_plainly(position: int) -> None:
            nonlocal said
            if time.monotonic() - said >= PLAIN_S:
                said = time.monotonic()
                click.echo(f"{folder.state.count:,} records, position {position:,} of {folder.state.to_position:,}", err=True)

        yield tell_plainly


@contextmanager
def _bar(folder: ExportFolder) -> Generator[Tell]:
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only by commands that draw
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - the same

    began = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("exporting", rate="", total=folder.state.to_position)

        def tell(position: int) -> None:
            rate = folder.state.count / max(0.001, time.monotonic() - began)
            shown.update(task, completed=position, total=folder.state.to_position, rate=printable(f"{rate:,.0f} records/s"))

        yield tell
