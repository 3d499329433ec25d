"""``make bench``: how fast a governed call is, in relation to a bare handler on the same machine in the same run.

Writes a table to the terminal and everything to build/bench.json. Not a test: a missed target is shown, not raised.
"""

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import asyncpg
import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks.measures import CALLERS, MEASURES, PER_SECOND, Bench, Findings, Line, Options
from tests.benchmarks.workshop import BenchFailed, Workshop, open_workshop
from tests.conftest import ROOT

RESULTS = ROOT / "build" / "bench.json"
QUICK = Options(seconds=2.0, rounds=1, stored=50_000, tools=1_000, calls=4_000)
FULL = Options(seconds=8.0, rounds=3, stored=1_000_000, tools=1_000, calls=20_000)
WIDTH = 140
CLEAR = "\r\033[K"


@click.command()
@click.option("--quick", is_flag=True, help="About two minutes: short rounds, a smaller ledger. For a first impression.")
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(MEASURES)), help="Only this measure; may be given again.")
@click.option("--calls", type=click.IntRange(1_000), help="Calls of the memory measure (200000 for the long run).")
@click.option("--stored", type=click.IntRange(2_000), help="Decisions of the large ledger.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=RESULTS, help="The JSON file.", show_default=True)
def main(*, quick: bool, chosen: tuple[str, ...], calls: int | None, stored: int | None, out: Path) -> None:
    """Measure the gateway; every ratio is within one run."""
    options = QUICK if quick else FULL
    options = replace(options, calls=calls or options.calls, stored=stored or options.stored)
    # A stop from outside unwinds like Ctrl-C, so that nothing stays behind.
    signal.signal(signal.SIGTERM, _stop)
    screen, began = Console(width=WIDTH), time.monotonic()
    try:
        with open_workshop() as workshop:
            machine = asyncio.run(_describe_machine(workshop))
            findings = asyncio.run(_measure(workshop, options, chosen or tuple(MEASURES), _teller(began)))
    except BenchFailed as failure:
        raise click.ClickException(str(failure)) from None
    except KeyboardInterrupt:
        raise click.ClickException("stopped") from None
    took_s = time.monotonic() - began
    _show(screen, findings, machine, took_s)
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {"at": datetime.now(UTC).isoformat(), "took_s": round(took_s, 1), "machine": machine, "options": asdict(options)}
    out.write_text(json.dumps(document | asdict(findings), indent=2) + "\n")
    screen.print(f"Everything stands in {os.path.relpath(out)}.")


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


async def _measure(workshop: Workshop, options: Options, chosen: tuple[str, ...], tell: Callable[[str], None]) -> Findings:
    bench = Bench(workshop, options, tell)
    for number, name in enumerate(chosen, 1):

        def say(doing: str, place: str = f"[{number}/{len(chosen)}] {name}") -> None:
            tell(f"{place}: {doing}")

        bench.tell = say
        await MEASURES[name](bench)
    return bench.findings


def _teller(began: float) -> Callable[[str], None]:
    def tell(doing: str) -> None:
        line = f"{time.monotonic() - began:6.0f} s  {doing}"
        sys.stderr.write(f"{CLEAR}{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    return tell


async def _describe_machine(workshop: Workshop) -> dict[str, Any]:
    connection = await asyncpg.connect(workshop.owner_url)
    try:
        version = await connection.fetchval("SHOW server_version")
        fsync = await connection.fetchval("SHOW fsync")
        commit = await connection.fetchval("SHOW synchronous_commit")
    finally:
        await connection.close()
    git = await asyncio.create_subprocess_exec(
        "git", "rev-parse", "--short", "HEAD", cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    commit_id, _ = await git.communicate()
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "postgresql": version,
        "fsync": fsync,
        "synchronous_commit": commit,
        "fsync_ms": round(_time_fsync(workshop.folder), 3),
        "commit": commit_id.decode().strip(),
    }


def _time_fsync(folder: Path) -> float:
    """Milliseconds of one 8 KiB write with fsync: the floor of every commit."""
    count = 200
    with (folder / "fsync").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(count):
            file.write(bytes(8192))
            os.fsync(file.fileno())
    return (time.perf_counter() - began) * 1000 / count


def _show(screen: Console, findings: Findings, machine: dict[str, Any], took_s: float) -> None:
    sys.stderr.write(CLEAR if sys.stderr.isatty() else "")
    sys.stderr.flush()
    table = Table(title="What a call takes", caption="CPU: milliseconds of CPU time per call")
    for column in ("measure", "calls/s", "p50 ms", "p99 ms", "CPU server", "policy", "PostgreSQL", "load", "last/first third"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for line in findings.lines:
        table.add_row(*_cells(line))
    screen.print(table)
    ratios = Table(title="What counts")
    for column in ("figure", "value", "by CPU time", "target", ""):
        ratios.add_column(column, justify="right" if column in {"value", "by CPU time"} else "left")
    for ratio in findings.ratios:
        by_cpu = f"{ratio.by_cpu:.2f}" if ratio.by_cpu is not None else ""
        verdict = {None: "", True: "reached", False: "[bold]missed[/bold]"}[ratio.is_reached]
        ratios.add_row(ratio.name, f"{ratio.value:.2f}", by_cpu, ratio.target, verdict)
    screen.print(ratios)
    for note in findings.notes:
        screen.print(note)
    screen.print(
        f"{machine['cores']} cores in all, shared by the server, its policy worker, PostgreSQL and the load generator; the baseline is one "
        f"process on one core, its load generator on another. {CALLERS} callers, or {PER_SECOND:.0f} arrivals a second. PostgreSQL "
        f"{machine['postgresql']}, fsync {machine['fsync']}, {machine['fsync_ms']} ms for one write with fsync. Took {took_s:.0f} s."
    )


def _cells(line: Line) -> list[str]:
    cpu = (line.server_cpu_ms, line.workers_cpu_ms, line.postgres_cpu_ms, line.load_cpu_ms)
    drift = f"{line.thirds[-1] / line.thirds[0]:.2f}" if line.thirds and line.thirds[0] else ""
    return [
        line.name,
        f"{line.rate:,.0f}",
        f"{line.p50_ms:.2f}",
        f"{line.p99_ms:.2f}",
        *(f"{part:.3f}" if part else "" for part in cpu),
        drift,
    ]


if __name__ == "__main__":
    main()
