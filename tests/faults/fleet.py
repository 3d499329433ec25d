"""Several gateways on one database, a tool service beside them, and the means to kill, freeze and restart each of them.

Every process is started here and ended here, by its own pid; all of them die with the test process.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

from tests.conftest import ROOT, temporary_data_dir
from tests.faults.dump import DEADLOCK, count_unsettled, read_dump
from tests.faults.evidence import Dump, Effect, History, Setup, read_effects, read_setup, write_all
from tests.faults.history import Recorder

BUNDLE = Path(__file__).parent / "bundle"
AGENTS = {"first-agent": "fault-key-of-the-first-agent", "second-agent": "fault-key-of-the-second-agent"}
AUDITOR_KEY, OPERATOR_KEY = "fault-key-of-the-auditor", "fault-key-of-the-operator"
PERSON, APPROVER_KEY = "dana", "fault-key-of-the-approver"
START_S, STOP_S = 30.0, 20.0
_POLL_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that a run left behind."""

    history: History
    effects: list[Effect]
    dump: Dump
    setup: Setup

    def keep(self, folder: Path) -> None:
        """Write it down for whoever has to understand a violation."""
        folder.mkdir(parents=True, exist_ok=True)
        write_all(folder / "history.jsonl", self.history.operations)
        write_all(folder / "nemeses.jsonl", self.history.nemeses)
        write_all(folder / "effects.jsonl", self.effects)
        for name in ("calls", "holds", "budgets", "records", "claims", "grants"):
            write_all(folder / f"{name}.jsonl", getattr(self.dump, name))


@dataclass(kw_only=True)
class Gateway:
    """One serving gateway."""

    name: str
    process: psutil.Process
    url: str
    stderr: Path
    children: list[psutil.Process] = field(default_factory=list[psutil.Process])

    def is_alive(self) -> bool:
        """Whether it runs or is frozen."""
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class Launcher:
    """A process that has imported everything and forks gateways on order (launch.py); fleets may share one."""

    def __init__(self) -> None:
        self._process = _start("tests.faults.launch")
        _read_line(self._process)

    def fork(self, order: Mapping[str, Any]) -> psutil.Process:
        """A gateway as `order` says."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return psutil.Process(_read_line(self._process)["pid"])

    def close(self) -> None:
        """End it, and whatever it forked."""
        _end_with_stdin(self._process)


class Fleet:
    """Gateways by name, their database, their tool service, the history of their clients."""

    def __init__(
        self, folder: Path, database_url: str, *, subjects: int = 0, tool_origin: str | None = None, launcher: Launcher | None = None
    ) -> None:
        self.folder = folder
        self.database_url = database_url
        self.bundle = _copy_bundle(folder / "bundle", subjects)
        self.setup = read_setup(self.bundle)
        self.recorder = Recorder(folder / "history")
        self.gateways: dict[str, Gateway] = {}
        self._ended: list[Gateway] = []
        self._effects = folder / "effects"
        self._tool = _start("tests.faults.tool_service", str(self._effects), "--database-url", database_url)
        self.tool_url: str = _read_line(self._tool)["url"]
        self._has_own_launcher = launcher is None
        self._launcher = launcher or Launcher()
        self._started = 0
        self._starting = threading.Lock()
        self.config = _write_config(folder, tool_origin or self.tool_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def route_tools_through(self, origin: str) -> None:
        """Gateways that start from now on reach the tools at `origin`."""
        self.config = _write_config(self.folder, origin)

    def start(self, name: str, *, database_url: str | None = None, **environment: str) -> Gateway:
        """Start a gateway and wait until it listens."""
        self.begin(name, database_url=database_url, **environment)
        return self.wait(name)

    def begin(self, name: str, *, database_url: str | None = None, **environment: str) -> None:
        """Start a gateway without waiting for it."""
        with self._starting:
            self._started += 1
            self._fork(name, database_url or self.database_url, environment)

    def _fork(self, name: str, database_url: str, environment: Mapping[str, str]) -> None:
        stdout, stderr = (self.folder / f"{name}-{self._started}.{stream}" for stream in ("out", "err"))
        order = {
            "argv": [
                "serve", "--bundle", str(self.bundle), "--port", "0", "--config", str(self.config),
                "--database-url", database_url,
            ],
            "env": dict(environment),
            "stdout": str(stdout),
            "stderr": str(stderr),
        }  # fmt: skip
        process = self._launcher.fork(order)
        self.gateways[name] = Gateway(name=name, process=process, url="", stderr=stderr)

    def wait(self, name: str) -> Gateway:
        """Wait until a begun gateway listens."""
        gateway = self.gateways[name]
        stdout, deadline = gateway.stderr.with_suffix(".out"), time.monotonic() + START_S
        while True:
            lines = stdout.read_text().splitlines() if stdout.exists() else []
            if lines:
                gateway.url = json.loads(lines[0])["url"]
                gateway.children = gateway.process.children(recursive=True)
                return gateway
            if not gateway.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"gateway {name} did not start: {gateway.stderr.read_text()[-2000:]}")
            time.sleep(_POLL_S)

    def kill(self, name: str) -> None:
        """Kill it with SIGKILL."""
        self._note("kill", name)
        self._end(name, signal.SIGKILL)

    def terminate(self, name: str) -> None:
        """SIGTERM, and wait for its end."""
        self._note("terminate", name)
        self._end(name, signal.SIGTERM)

    def forget(self, name: str) -> None:
        """A gateway has killed itself at a point of death; wait for its end."""
        self._note("died", name)
        self._end(name, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        self._note("freeze", name)
        os.kill(self.gateways[name].process.pid, signal.SIGSTOP)

    def is_frozen(self, name: str) -> bool:
        """Whether the gateway stands still."""
        return self.gateways[name].process.status() == psutil.STATUS_STOPPED

    async def wait_until_frozen(self, name: str, patience_s: float = 30.0) -> None:
        """Wait until a gateway stands still at the point where it was told to."""
        async with asyncio.timeout(patience_s):
            while not self.is_frozen(name):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_POLL_S)

    async def wait_until_arrived(self, action: str, patience_s: float = 30.0) -> None:
        """Wait until an action has reached its tool."""
        async with asyncio.timeout(patience_s):
            while not any(effect.action == action for effect in read_effects(self._effects)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(_POLL_S)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._note("thaw", name)
        os.kill(self.gateways[name].process.pid, signal.SIGCONT)

    def url(self, name: str) -> str:
        """Where a gateway listens."""
        return self.gateways[name].url

    async def wait_until_quiet(self, patience_s: float) -> dict[str, int]:
        """Wait until nothing runs and no doubt is left that a gateway could end; answers what is left at the end."""
        deadline = time.monotonic() + patience_s
        while True:
            left = {what: many for what, many in (await count_unsettled(self.database_url)).items() if not self._may_stay(what)}
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.2)

    async def collect(self) -> Evidence:
        """Everything that the run left behind so far."""
        dump = await read_dump(self.database_url)
        # The database counts deadlocks some seconds late; gateways log theirs at once.
        logged = sum(path.read_text(errors="replace").count(DEADLOCK) for path in self.folder.glob("*.err"))
        dump = replace(dump, deadlocks=max(dump.deadlocks, logged))
        return Evidence(history=self.recorder.read(), effects=read_effects(self._effects), dump=dump, setup=self.setup)

    def close(self) -> None:
        """End everything that was started here."""
        for name in list(self.gateways):
            self._end(name, signal.SIGKILL)
        _end_with_stdin(self._tool)
        if self._has_own_launcher:
            self._launcher.close()
        self.recorder.close()
        self._check_orphans()

    def _may_stay(self, what: str) -> bool:
        tool, state = what.split()
        return state == "in_doubt" and self.setup.tools[tool].replay == "never"

    def _note(self, what: str, name: str) -> None:
        self.recorder.note(what, name)

    def _end(self, name: str, number: signal.Signals) -> None:
        gateway = self.gateways.pop(name)
        self._ended.append(gateway)
        deadline = time.monotonic() + STOP_S
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end between two lines
            gateway.process.send_signal(number)
        while gateway.is_alive():
            if time.monotonic() > deadline:
                gateway.process.kill()
                raise RuntimeError(f"gateway {name} did not end on {number.name}")
            time.sleep(_POLL_S)

    def _check_orphans(self) -> None:
        children = [child for gateway in self._ended for child in gateway.children]
        _, left = psutil.wait_procs(children, timeout=5)
        for child in left:
            child.kill()
        if left:
            raise RuntimeError(f"{len(left)} processes outlived their gateway")


@contextmanager
def open_fleet(database_url: str, **settings: Any) -> Generator[Fleet]:
    """A fleet in a folder of its own."""
    with temporary_data_dir() as folder, Fleet(folder, database_url, **settings) as fleet:
        yield fleet


def _copy_bundle(target: Path, subjects: int) -> Path:
    shutil.copytree(BUNDLE, target)
    path = target / "principals.yaml"
    principals = yaml.safe_load(path.read_text())
    principals["subjects"] |= {f"s{number:04d}": {"permissions": ["fault:read", "fault:write"]} for number in range(1, subjects + 1)}
    path.write_text(yaml.safe_dump(principals, sort_keys=False))
    return target


def _write_config(folder: Path, origin: str) -> Path:
    secrets: Mapping[str, str] = AGENTS | {"auditor": AUDITOR_KEY, "operator": OPERATOR_KEY, PERSON: APPROVER_KEY}
    for name, secret in secrets.items():
        (folder / f"{name}.key").write_text(secret)
    keys: list[dict[str, Any]] = [{"secret": {"file": str(folder / f"{name}.key")}, "roles": ["agent"], "agent": name} for name in AGENTS]
    keys += [{"secret": {"file": str(folder / f"{role}.key")}, "roles": [role], "name": role} for role in ("auditor", "operator")]
    keys.append({"secret": {"file": str(folder / f"{PERSON}.key")}, "roles": ["approver"], "person": PERSON})
    config = folder / f"gateway-{time.monotonic_ns()}.yaml"
    config.write_text(yaml.safe_dump({"keys": keys, "connections": {"faults": {"origin": origin, "internal": True}}}))
    return config


def _start(module: str, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module, *args], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _end_with_stdin(process: "subprocess.Popen[str]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
    if process.stdout is not None:
        process.stdout.close()


def _read_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait(5)} before it was ready")
    return json.loads(line)
