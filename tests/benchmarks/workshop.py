"""The processes of a bench: they start, are measured, and end with it, whatever ends it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil

from gateway.ledger.migrate import APP_ROLE
from tests.benchmarks.bundle import AGENT_KEY, AUDITOR_KEY, write_bundle, write_config
from tests.benchmarks.load import LONGEST_S, Plan, Result
from tests.conftest import ROOT, TEMPLATE, url_of

STOP_S = 45.0
TETHER = Path(__file__).with_name("tether.py")


class BenchFailed(Exception):
    """The bench cannot say anything; the text tells why."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A listening process, and the database that it writes to."""

    url: str
    pid: int
    database: str | None = None

    def plan(self, body: str, expect: str, **settings: Any) -> Plan:
        """A load plan against this server's ``POST /v1/calls``."""
        where = urlsplit(self.url)
        return Plan(host=where.hostname or "", port=where.port or 0, path="/v1/calls", key=AGENT_KEY, body=body, expect=expect, **settings)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A load's result, and what a call cost in CPU milliseconds: of the server, its policy workers, PostgreSQL, the load generator."""

    result: Result
    server_cpu_ms: float
    workers_cpu_ms: float
    postgres_cpu_ms: float
    load_cpu_ms: float


class Workshop:
    """A folder, a PostgreSQL, and the processes of one bench."""

    def __init__(self, folder: Path, owner_url: str, postgres_pid: int) -> None:
        self.folder = folder
        self.owner_url = owner_url
        self._postgres_pid = postgres_pid
        self._made = 0

    @asynccontextmanager
    async def gateway(self, *, profile: Path | None = None, workers: int = 1, **bundle: Any) -> AsyncGenerator[Server]:
        """A serving gateway over a bundle of `write_bundle`, on a database of its own; with `profile` under cProfile.

        With several `workers` the server's CPU is that of the process which watches them, all else counts for the workers.
        """
        self._made += 1
        place, database = self.folder / f"gateway-{self._made}", f"bench_{self._made}"
        place.mkdir()
        await self._create_database(database)
        command = (
            sys.executable, *(("-m", "tests.benchmarks.serve_profiled", str(profile)) if profile else ("-m", "gateway")), "serve", "--port", "0",
            "--bundle", str(write_bundle(place / "bundle", **bundle)), "--config", str(write_config(place / "gateway.yaml")),
            "--database-url", url_of(self.owner_url, database, APP_ROLE), "--workers", str(workers),
        )  # fmt: skip
        keys = {"BENCH_AGENT_KEY": AGENT_KEY, "BENCH_AUDITOR_KEY": AUDITOR_KEY}
        with started(command, place / "stderr", keys) as (process, url):
            yield Server(url=url, pid=process.pid, database=database)

    @contextmanager
    def bare_server(self) -> Generator[Server]:
        """The baseline."""
        with started((sys.executable, "-m", "tests.benchmarks.servers"), self.folder / "bare-stderr", {}) as (process, url):
            yield Server(url=url, pid=process.pid)

    @asynccontextmanager
    async def inserting_server(self) -> AsyncGenerator[Server]:
        """The baseline with one INSERT a call."""
        await self._create_database("bench_insert")
        command = (sys.executable, "-m", "tests.benchmarks.servers", url_of(self.owner_url, "bench_insert", "postgres"))
        with started(command, self.folder / "insert-stderr", {}) as (process, url):
            yield Server(url=url, pid=process.pid, database="bench_insert")

    def owner_url_of(self, server: Server) -> str:
        """The owner's URL of a server's database."""
        return url_of(self.owner_url, server.database or "postgres", "postgres")

    async def load(self, server: Server, plan: Plan) -> Measured:
        """Carry a plan out in a process of its own. Raises BenchFailed where answers are not what they must be."""
        before = self._cpu(server)
        process = await asyncio.create_subprocess_exec(
            *tethered((sys.executable, "-m", "tests.benchmarks.load")), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(json.dumps(asdict(plan)).encode()), LONGEST_S + 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise BenchFailed("the load generator failed; see above")
        after = self._cpu(server)
        found = json.loads(said)
        load_s = found.pop("cpu_s")
        result = Result(**found)
        if result.wrong:
            raise BenchFailed(f"{result.wrong} of {result.answers} answers were not {plan.expect}, the first:\n{result.first_wrong}")
        spent = [(late - early) * 1000 / result.all_answers for early, late in zip(before, after, strict=True)]
        return Measured(
            result=result,
            server_cpu_ms=spent[0],
            workers_cpu_ms=spent[1],
            postgres_cpu_ms=spent[2],
            load_cpu_ms=load_s * 1000 / result.all_answers,
        )

    def _cpu(self, server: Server) -> tuple[float, float, float]:
        process = psutil.Process(server.pid)
        return _seconds(process), sum(map(_seconds, process.children(recursive=True))), sum(map(_seconds, self._backends(server)))

    def _backends(self, server: Server) -> list[psutil.Process]:
        """All of PostgreSQL but the other servers' idle connections, which use nothing."""
        postmaster = psutil.Process(self._postgres_pid)
        return [postmaster, *postmaster.children()] if server.database else []

    async def _create_database(self, name: str) -> None:
        connection = await asyncpg.connect(self.owner_url)
        try:
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        finally:
            await connection.close()


@contextmanager
def open_workshop() -> Generator[Workshop]:
    """A folder and a PostgreSQL, for as long as the block lasts."""
    # Not tethered: it has to clear away first, and does so when its stdin ends. Its wheel's warnings are no news here.
    process = subprocess.Popen(
        (sys.executable, "-W", "ignore", "-m", "tests.benchmarks.database"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        ready = _wait_until_listening(process)
        folder = Path(ready["folder"])
        pid = int((folder / "data" / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0])
        yield Workshop(folder, ready["url"], pid)
    finally:
        process.stdin.close()
        process.wait(STOP_S)


@contextmanager
def started(command: tuple[str, ...], errors: Path, environment: Mapping[str, str]) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A server process and its URL; ended by SIGTERM, or killed."""
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            tethered(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, env={**os.environ, **environment}
        )
    try:
        yield process, _wait_until_listening(process, errors)["url"]
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tethered(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, but ending with this process."""
    return (sys.executable, str(TETHER), str(os.getpid()), *command)


def _wait_until_listening(process: subprocess.Popen[bytes], errors: Path | None = None) -> dict[str, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        said = errors.read_text(errors="replace")[-2_000:] if errors else "see above"
        raise BenchFailed(f"a server did not start:\n{said}")
    return json.loads(line)


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system
