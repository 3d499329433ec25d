"""What is measured, and how the figures of one run relate to each other. Everything runs in the same bench: ratios count."""

import asyncio
import json
import statistics
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.benchmarks.load import Plan, Result
from tests.benchmarks.prefill import prefill
from tests.benchmarks.workshop import BenchFailed, Measured, Server, Workshop, tethered
from tests.conftest import ROOT

CALLERS = 32
WORKERS = 2
"""Processes of ``serve --workers``: as many as the machine of the targets has cores."""
PER_SECOND = 200.0
BARRIER = ROOT / ".tools" / "agentbarrier" / "bin" / "python"

_SETTING = '{"workflow": "bench", "run_id": "run-@CALLER@", "on_behalf_of": "subject-@CALLER@", "call": '
GOVERNED = _SETTING + '{"name": "noop", "args": {"n": @N@, "city": "Paris, France"}}}'
BLOCKED = _SETTING + '{"name": "refused", "args": {"n": @N@, "city": "Paris, France"}}}'
REPLAYED = _SETTING + '{"name": "noop", "args": {"n": 1, "city": "Paris, France"}, "idempotency_key": "bench-key-of-caller-@CALLER@"}}'
OK = '"status":"ok"'


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long and how much."""

    seconds: float
    rounds: int
    stored: int
    """Decisions of the large ledger; the small one has 1,000."""
    tools: int
    calls: int
    """Calls of the memory measure."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table: the median round's figures."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    workers_cpu_ms: float = 0.0
    postgres_cpu_ms: float = 0.0
    load_cpu_ms: float = 0.0
    rates: list[float] = field(default_factory=list)
    thirds: list[float] = field(default_factory=list)

    @property
    def cpu_ms(self) -> float:
        """All that serves the call."""
        return self.server_cpu_ms + self.workers_cpu_ms + self.postgres_cpu_ms


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A figure that has a target. `is_reached` is None where there is nothing to reach."""

    name: str
    value: float
    by_cpu: float | None = None
    """The same ratio of calls a CPU second (server, policy worker and PostgreSQL): what a noisy machine disturbs less."""
    target: str
    is_reached: bool | None


@dataclass(kw_only=True)
class Findings:
    """Everything that a bench found out."""

    lines: list[Line] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Variant = tuple[Server, Plan]


class Bench:
    """Takes the measures one after the other."""

    def __init__(self, workshop: Workshop, options: Options, tell: Callable[[str], None]) -> None:
        self._workshop = workshop
        self._options = options
        self.tell = tell
        self.findings = Findings()

    async def path(self) -> None:
        """The baseline, and what of its rate is left of a governed, a blocked and a replayed call."""
        with self._workshop.bare_server() as bare:
            async with self._gateway() as server, self._gateway(workers=WORKERS) as shared:
                variants = {
                    "baseline": self._closed(bare, GOVERNED),
                    "governed read": self._closed(server, GOVERNED),
                    f"governed read, {WORKERS} workers": self._closed(shared, GOVERNED),
                    "blocked": self._closed(server, BLOCKED, expect='"DEFAULT_DENY"'),
                    "replay": self._closed(server, REPLAYED, expect='"replayed":true'),
                }
                lines = await self._compare(variants)
                self._relate("governed read / baseline", lines["governed read"], lines["baseline"], at_least=0.15, aim=0.25)
                shared_line = lines[f"governed read, {WORKERS} workers"]
                self._relate(f"governed read, {WORKERS} workers / baseline", shared_line, lines["baseline"], at_least=0.15, aim=0.25)
                self._relate("blocked / baseline", lines["blocked"], lines["baseline"], at_least=0.30)
                self._relate("replay / baseline", lines["replay"], lines["baseline"], at_least=0.30)
                arrivals = {
                    f"{name}, {PER_SECOND:.0f}/s": (target, self._plan(target, GOVERNED, OK, per_second=PER_SECOND))
                    for name, target in {"baseline": bare, "governed read": server}.items()
                }
                await self._compare(arrivals)

    async def hot(self) -> None:
        """All callers on one budget row, against a budget row for each, and none."""
        async with (
            self._gateway() as without,
            self._gateway(budgets=1, per="subject") as apart,
            self._gateway(budgets=1, per="tenant") as hot,
        ):
            lines = await self._compare(
                {
                    "no budget": self._closed(without, GOVERNED),
                    "a budget row each": self._closed(apart, GOVERNED),
                    "one budget row": self._closed(hot, GOVERNED),
                }
            )
        self._relate("one budget row / no budget", lines["one budget row"], lines["no budget"], at_least=0.80)
        self._relate("one budget row / a row each", lines["one budget row"], lines["a budget row each"])

    async def stored(self) -> None:
        """1,000 stored decisions against many."""
        few, many = 1_000, self._options.stored
        async with self._gateway() as small, self._gateway() as large:
            for server, calls in ((small, few), (large, many)):
                await self._workshop.load(server, self._plan(server, GOVERNED, OK, callers=1, calls=1, warm_up_s=0))
                await prefill(self._workshop.owner_url_of(server), calls, self.tell)
            names = f"{few:,} stored", f"{many:,} stored"
            lines = await self._compare({names[0]: self._closed(small, GOVERNED), names[1]: self._closed(large, GOVERNED)})
        self._relate(f"{names[1]} / {names[0]}", lines[names[1]], lines[names[0]], at_least=0.85)

    async def tools(self) -> None:
        """10 tools against many."""
        few, many = 10, self._options.tools
        async with self._gateway(tools=few) as small, self._gateway(tools=many) as large:
            lines = await self._compare({f"{few} tools": self._closed(small, GOVERNED), f"{many:,} tools": self._closed(large, GOVERNED)})
        self._relate(f"{many:,} / {few} tools", lines[f"{many:,} tools"], lines[f"{few} tools"], at_least=0.85)

    async def budgets(self) -> None:
        """1 budget a call against 20."""
        async with self._gateway(budgets=1) as one, self._gateway(budgets=20) as twenty:
            lines = await self._compare(
                {"1 budget a call": self._closed(one, GOVERNED), "20 budgets a call": self._closed(twenty, GOVERNED)}
            )
        self._relate("20 / 1 budgets a call", lines["20 budgets a call"], lines["1 budget a call"])

    async def memory(self) -> None:
        """Resident memory of the gateway process, after its warm-up and while it governs many calls."""
        calls = self._options.calls
        async with self._gateway() as server:
            process = psutil.Process(server.pid)
            await self._workshop.load(server, self._plan(server, GOVERNED, OK, calls=2_000, warm_up_s=0))
            watch = asyncio.create_task(_watch(process))
            plan = self._plan(server, GOVERNED, OK, calls=calls, warm_up_s=0)
            self.tell(f"memory: {calls:,} calls")
            line = _line("memory run", [await self._workshop.load(server, plan)])
            watch.cancel()
            seen = [*await _collect(watch), _mib(process)]
        self.findings.lines.append(line)
        growth = statistics.fmean(seen[-max(1, len(seen) // 10) :]) / seen[0]
        highest = f"RSS in MiB, highest over {calls:,} calls"
        self.findings.ratios += [
            Ratio(name=highest, value=max(seen), target="< 300", is_reached=max(seen) < 300),
            Ratio(name="RSS at the end / after warm-up", value=growth, target="<= 1.10", is_reached=growth <= 1.10),
        ]

    async def beside(self) -> None:
        """What others take: a handler with one INSERT, and agentbarrier on SQLite."""
        async with self._workshop.inserting_server() as server:
            await self._compare({"handler + one INSERT": self._closed(server, GOVERNED)})
        if not BARRIER.exists():
            self.findings.notes.append("agentbarrier was not measured: `make referee` installs it")
            return
        self.tell("agentbarrier")
        command = (str(BARRIER), "-m", "tests.benchmarks.barrier", str(self._workshop.folder / "barrier.db"), str(self._options.seconds))
        process = await asyncio.create_subprocess_exec(*tethered(command), stdout=subprocess.PIPE, cwd=ROOT)
        said, _ = await asyncio.wait_for(process.communicate(), self._options.seconds + 60)
        if process.returncode != 0:
            raise BenchFailed("agentbarrier failed; see above")
        found = json.loads(said)
        self.findings.lines.append(
            Line(
                name="agentbarrier on SQLite, no HTTP",
                rate=found["rate"],
                p50_ms=found["p50_ms"],
                p99_ms=found["p99_ms"],
                server_cpu_ms=found["cpu_ms"],
            )
        )

    @asynccontextmanager
    async def _gateway(self, **bundle: Any) -> AsyncGenerator[Server]:
        self.tell("starting a gateway " + ", ".join(f"{name} {value}" for name, value in bundle.items()))
        async with self._workshop.gateway(**bundle) as server:
            yield server

    async def _compare(self, variants: Mapping[str, Variant]) -> dict[str, Line]:
        """Round by round, each variant once a round: what disturbs the machine disturbs all of them."""
        seen: dict[str, list[Measured]] = {name: [] for name in variants}
        for number in range(self._options.rounds):
            # There and back again: what drifts does not favour one of them.
            for name in list(variants)[:: -1 if number % 2 else 1]:
                server, plan = variants[name]
                self.tell(f"{name}, round {number + 1} of {self._options.rounds}")
                seen[name].append(await self._workshop.load(server, plan))
        lines = {name: _line(name, measured) for name, measured in seen.items()}
        self.findings.lines.extend(lines.values())
        return lines

    def _closed(self, server: Server, body: str, *, expect: str = OK) -> Variant:
        return server, self._plan(server, body, expect)

    def _plan(self, server: Server, body: str, expect: str, **settings: Any) -> Plan:
        return server.plan(body, expect, **({"callers": CALLERS, "seconds": self._options.seconds} | settings))

    def _relate(self, name: str, line: Line, to: Line, *, at_least: float | None = None, aim: float | None = None) -> None:
        value = line.rate / to.rate
        target = "reported" if at_least is None else f">= {at_least:.2f}" + (f", aim {aim:.2f}" if aim else "")
        is_reached = None if at_least is None else value >= at_least
        self.findings.ratios.append(Ratio(name=name, value=value, by_cpu=to.cpu_ms / line.cpu_ms, target=target, is_reached=is_reached))


MEASURES: Mapping[str, Callable[[Bench], Awaitable[None]]] = {
    "path": Bench.path,
    "beside": Bench.beside,
    "hot": Bench.hot,
    "tools": Bench.tools,
    "budgets": Bench.budgets,
    "stored": Bench.stored,
    "memory": Bench.memory,
}


def _line(name: str, measured: list[Measured]) -> Line:
    """The median round's figures, under a name."""
    middle = sorted(measured, key=lambda each: each.result.rate)[len(measured) // 2]
    result: Result = middle.result
    return Line(
        name=name,
        rate=result.rate,
        p50_ms=result.p50_ms,
        p99_ms=result.p99_ms,
        server_cpu_ms=middle.server_cpu_ms,
        workers_cpu_ms=middle.workers_cpu_ms,
        postgres_cpu_ms=middle.postgres_cpu_ms,
        load_cpu_ms=middle.load_cpu_ms,
        rates=[each.result.rate for each in measured],
        thirds=result.thirds,
    )


async def _watch(process: psutil.Process) -> list[float]:
    seen: list[float] = []
    while True:
        seen.append(_mib(process))
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            return seen


async def _collect(watch: asyncio.Task[list[float]]) -> list[float]:
    return await watch


def _mib(process: psutil.Process) -> float:
    return process.memory_info().rss / 2**20
