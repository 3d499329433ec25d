"""The real OPA for tests: where it is, and how it is started, always with the configuration that is delivered."""

import asyncio
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.api.opa_bundle import answer_bundle
from gateway.domain.catalogue import PolicySet
from gateway.policy.opa import OpaEngine
from gateway.policy.opa_bundle import BundleShelf, BundleSigner, OpaBundle

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "deploy" / "opa.yaml"
ENGINE_KEY = "an-engine-key-of-the-tests"


@functools.cache
def find_opa() -> str:
    """The program; skips the test where there is none, and fails it in CI. ``make opa`` gets it."""
    own = ROOT / ".tools" / "opa"
    found = shutil.which("opa") or (str(own) if own.exists() else None)
    if found is None:
        sentence = "there is no OPA: `make opa` finds the one on PATH or builds it with Go"
        pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)
    return found


@functools.cache
def opa_version() -> str:
    """Such as ``1.22.3``."""
    output = subprocess.run([find_opa(), "version"], check=True, capture_output=True, text=True).stdout
    return output.split("\n", 1)[0].removeprefix("Version: ").strip()


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@dataclass(kw_only=True)
class Opa:
    """A running OPA."""

    url: str
    process: asyncio.subprocess.Process

    async def stop(self) -> None:
        """End it as a crash would."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def run_opa(
    gateway_url: str, *options: str, port: int | None = None, key: str = ENGINE_KEY, **environment: str
) -> AsyncGenerator[Opa]:
    """OPA with deploy/opa.yaml, answering on its port; whether it has a bundle yet is another matter."""
    port = port or free_port()
    process = await asyncio.create_subprocess_exec(
        find_opa(), "run", "--server", "--addr", f"127.0.0.1:{port}", "--config-file", str(CONFIG),
        "--skip-version-check", "--log-level", "error", *options,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GATEWAY_URL": gateway_url, "GATEWAY_ENGINE_KEY": key, **environment},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    opa = Opa(url=f"http://127.0.0.1:{port}", process=process)
    try:
        await _wait_until_up(opa)
        yield opa
    finally:
        await opa.stop()


async def _wait_until_up(opa: Opa) -> None:
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            assert opa.process.returncode is None, "OPA ended at its start"
            try:
                async with session.get(f"{opa.url}/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)


class BundleHost:
    """The gateway's bundle route, over whatever the test puts in force."""

    def __init__(self, signer: BundleSigner | None = None) -> None:
        self.url = ""
        self.pulls = 0
        self.in_force: PolicySet | None = None
        self.shelf = BundleShelf(signer)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["BundleHost"]:
        """Serve on a free port."""
        app = web.Application()
        app.router.add_get("/v1/bundles/active.tar.gz", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.pulls += 1
        await until(lambda: self.in_force is not None)  # a refusal would make OPA wait longer and longer
        return await answer_bundle(request, self._look)

    async def _look(self) -> OpaBundle:
        assert self.in_force is not None
        return await self.shelf.of(self.in_force)


class PulledOpa(OpaEngine):
    """The engine with a host that OPA pulls from: to activate is to put in force there, and to wait until OPA has it."""

    def __init__(self, url: str, host: BundleHost, *, deadline_s: float = 2.0) -> None:
        super().__init__(url, deadline_s=deadline_s)
        self._host = host

    async def activate(self, policies: PolicySet) -> None:
        """As the gateway does it: in force first, pulled then."""
        self._host.in_force = policies
        await super().activate(policies)
        async with asyncio.timeout(30):
            while policies.revision not in await self.revisions():  # noqa: ASYNC110 - nobody could set an event
                await asyncio.sleep(0.01)

    async def revisions(self) -> tuple[str, ...]:
        """Those of the bundles that OPA has now."""
        async with aiohttp.request("POST", self._question, data=b'{"input":{}}') as response:
            provenance = (await response.json()).get("provenance", {})
        return tuple(bundle["revision"] for bundle in provenance.get("bundles", {}).values())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.01)


async def until_ready(engine: OpaEngine) -> None:
    """Wait until OPA decides under the revision in force."""
    async with asyncio.timeout(30):
        while not await engine.is_ready():  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def pulled_opa() -> AsyncGenerator[Callable[..., PulledOpa]]:
    """A real OPA and its bundle host; makes engines that ask it."""
    find_opa()
    async with BundleHost().serving() as host, run_opa(host.url) as opa:

        def make(*, deadline_s: float = 2.0) -> PulledOpa:
            return PulledOpa(opa.url, host, deadline_s=deadline_s)

        yield make
