"""Where a governed read's time goes: stages by the clock, functions by cProfile. To read before anything is made faster.

cProfile makes Python functions look dearer than they are; its order is right, its sums are not.
"""

import asyncio
import json
import os
import pstats
import signal
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import click

from tests.benchmarks.measures import GOVERNED, OK
from tests.benchmarks.workshop import Measured, Workshop, open_workshop

_OUTCOMES = "SELECT body FROM records WHERE kind = 'outcome' ORDER BY position DESC LIMIT 2000"


@click.command()
@click.option("--callers", default=32, show_default=True, type=click.IntRange(1, 64))
@click.option("--seconds", default=6.0, show_default=True)
@click.option("--top", default=40, show_default=True, help="Functions to show in each order.")
def main(*, callers: int, seconds: float, top: int) -> None:
    """Profile a gateway under load."""
    with open_workshop() as workshop:
        output = workshop.folder / "gateway.profile"
        plain = asyncio.run(_load(workshop, None, callers, seconds))
        click.echo(
            f"without the profiler: {plain.result.rate:,.0f} calls/s, p50 {plain.result.p50_ms:.1f} ms; CPU a call: gateway "
            f"{plain.server_cpu_ms:.2f} ms, policy {plain.workers_cpu_ms:.2f} ms, PostgreSQL {plain.postgres_cpu_ms:.2f} ms"
        )
        profiled = asyncio.run(_load(workshop, output, callers, seconds))
        _show_functions(output, profiled.result.all_answers, top)


async def _load(workshop: Workshop, profile: Path | None, callers: int, seconds: float) -> Measured:
    async with workshop.gateway(profile=profile) as server:
        await workshop.load(server, server.plan(GOVERNED, OK, callers=callers, seconds=1.0))
        if profile is not None:
            os.kill(server.pid, signal.SIGUSR1)
        measured = await workshop.load(server, server.plan(GOVERNED, OK, callers=callers, seconds=seconds))
        if profile is None:
            connection = await asyncpg.connect(workshop.owner_url_of(server))
            try:
                _show_stages([json.loads(row["body"]) for row in await connection.fetch(_OUTCOMES)])
            finally:
                await connection.close()
        return measured


def _show_stages(records: list[dict[str, Any]]) -> None:
    taken: dict[str, list[float]] = {}
    for record in records:
        for stage in record["stages"]:
            taken.setdefault(stage["name"], []).append(stage["ms"])
    click.echo("median milliseconds by the clock: " + ", ".join(f"{name} {median(ms):.2f}" for name, ms in taken.items()))


def _show_functions(output: Path, calls: int, top: int) -> None:
    found: Any = pstats.Stats(str(output))
    rows: list[tuple[Any, Any]] = list(found.stats.items())
    for title, field in (("own time", 2), ("with what they call", 3)):
        click.echo(f"\nmicroseconds a call, {title}:")
        for (file, line, name), entry in sorted(rows, key=lambda row: -row[1][field])[:top]:
            place = "/".join(Path(file).parts[-2:])
            click.echo(f"{entry[field] * 1e6 / calls:9.1f}  {entry[1] / calls:7.2f} times  {place}:{line} {name}")


if __name__ == "__main__":
    main()
