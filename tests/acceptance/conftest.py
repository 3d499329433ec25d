"""A whole gateway on loopback: the travel bundle (or a changed copy), the sample service, a real PostgreSQL."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.api.server import make_runner
from gateway.app import DevMode, Running, check, open_gateway
from gateway.bundle import Report, compute_revision
from gateway.sample.travel import create_app as create_travel
from gateway.settings import Settings

AGENT = "dev-agent-key"
ALERTS = "dev-alerts-key"
AUDITOR = "dev-auditor-key"
AUTHOR = "dev-author-key"
START_S = 120
"""How long a serving process may take until it is ready; machines are shared and noisy."""


@dataclass(kw_only=True)
class Travel:
    """The sample service, with everything that reached it."""

    url: str
    runner: web.AppRunner
    arrivals: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@dataclass(kw_only=True)
class Gateway:
    """A running gateway and a client of it."""

    url: str
    session: aiohttp.ClientSession
    travel: Travel
    revision: str

    async def post(self, path: str, body: Any, *, key: str = AGENT, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and JSON of a POST; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"} | (headers or {})
        async with self.session.post(self.url + path, headers=sent, data=data) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str, *, key: str = AGENT, **params: str) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        async with self.session.get(self.url + path, headers={"Authorization": f"Bearer {key}"}, params=params) as response:
            return response.status, await response.json(content_type=None)

    async def call(self, name: Any, args: Any = None, *, key: str = AGENT, headers: dict[str, str] | None = None, **setting: Any) -> Any:
        """The answer on one call; it must be a 200."""
        call = {"name": name, "args": args} | {
            field: setting.pop(field) for field in ("id", "idempotency_key", "approval_id") if field in setting
        }
        status, answer = await self.post("/v1/calls", _setting(setting) | {"call": call}, key=key, headers=headers)
        assert status == 200, answer
        return answer

    async def round(self, calls: list[dict[str, Any]], *, headers: dict[str, str] | None = None, **setting: Any) -> list[Any]:
        """The answers on a round; it must be a 200."""
        status, answer = await self.post("/v1/rounds", _setting(setting) | {"calls": calls}, headers=headers)
        assert status == 200, answer
        return answer["results"]

    async def decision(self, decision_id: str) -> Any:
        """A record with what belongs to it, as the auditor sees it."""
        status, found = await self.get(f"/v1/decisions/{decision_id}", key=AUDITOR)
        assert status == 200, found
        return found

    async def payloads(self, decision_id: str) -> Any:
        """The payloads of a record, as an auditor reveals them."""
        body = {"reason": "the test looks at them"}
        status, found = await self.post(f"/v1/decisions/{decision_id}/reveal", body, key=AUDITOR)
        assert status == 200, found
        return found["payloads"]

    async def fault(self, method: str, path: str, mode: str) -> None:
        """Arm the sample service's next such request with a fault."""
        order = {"method": method, "path": path, "mode": mode}
        async with self.session.post(self.travel.url + "/faults", json=order, headers={"Authorization": "Bearer dev-token"}) as response:
            assert response.status < 300
        self.travel.arrivals.clear()


class Watch:
    """What is under way in a gateway, whoever still waits for it. Its `begin` is a `prepare` of `running_gateway`."""

    def __init__(self) -> None:
        self._requests = 0
        self._running: Running | None = None

    async def begin(self, running: Running) -> None:
        """Count its requests from now on."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._requests += 1
            try:
                return await handler(request)
            finally:
                self._requests -= 1

        running.app.middlewares.append(count)
        self._running = running

    async def until_rest(self, gateway: Gateway) -> None:
        """Wait until nothing is: every request that was sent is over, and every execution."""
        assert self._running is not None
        async with asyncio.timeout(60):
            while True:
                await gateway.get("/healthz")  # what was sent before has been read then
                if not self._requests and not len(self._running.tasks):
                    return
                await asyncio.sleep(0.05)


OpenGateway = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def travel() -> AsyncGenerator[Travel]:
    """The sample travel service, spied on."""
    app = create_travel()
    arrivals: list[str] = []
    headers: list[dict[str, str]] = []

    @web.middleware
    async def spy(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrivals.append(f"{request.method} {request.path_qs}")
        headers.append(dict(request.headers))
        return await handler(request)

    app.middlewares.append(spy)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield Travel(url=f"http://{host}:{port}", runner=runner, arrivals=arrivals, headers=headers)
    await runner.cleanup()


@pytest.fixture
async def open_with(database_url: str, travel: Travel, data_dir: Path) -> AsyncGenerator[OpenGateway]:
    """Opens a gateway over a bundle, on this test's database."""
    async with AsyncExitStack() as stack:

        async def open_one(bundle: Path, **settings: Any) -> Gateway:
            how = {name: settings.pop(name) for name in ("prepare", "serve") if name in settings}
            return await stack.enter_async_context(
                running_gateway(bundle, {"database_url": database_url, "data_dir": data_dir} | settings, travel, **how)
            )

        yield open_one


@pytest.fixture
async def gateway(open_with: OpenGateway, travel_bundle: Path) -> Gateway:
    """A gateway over the travel bundle."""
    return await open_with(travel_bundle)


@pytest.fixture
def copied_bundle(travel_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the travel bundle to change."""
    return Path(shutil.copytree(travel_bundle, tmp_path / "bundle"))


async def _checked(bundle: Path) -> Report:
    """The report on a bundle; equal files are checked once a session, since most tests serve the same ones."""
    revision = _revision_of(bundle)
    if revision not in _REPORTS:
        _REPORTS[revision] = await check(bundle)
    return _REPORTS[revision]


def _revision_of(bundle: Path) -> str:
    files = (path for path in bundle.rglob("*") if path.is_file())
    return compute_revision({path.relative_to(bundle).as_posix(): path.read_bytes() for path in files})


_REPORTS: dict[str, Report] = {}


@asynccontextmanager
async def running_gateway(
    bundle: Path,
    settings: dict[str, Any],
    travel: Travel,
    *,
    prepare: Callable[[Running], Awaitable[None]] | None = None,
    serve: Callable[[web.Application], web.AppRunner] = lambda app: make_runner(app, patience_s=1),
) -> AsyncGenerator[Gateway]:
    """A wired gateway behind a real server on a free port. `prepare` sees it before it is served."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            open_gateway(Settings.model_validate(settings), report=await _checked(bundle), dev=DevMode(travel_api=travel.url))
        )
        if prepare is not None:
            await prepare(running)
        runner = serve(running.app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Gateway(url=f"http://{host}:{port}", session=session, travel=travel, revision=running.revision)
        await running.tasks.drain(5)


def new_key() -> str:
    """A fresh idempotency key."""
    return f"key-{uuid4().hex}"


def _setting(given: dict[str, Any]) -> dict[str, Any]:
    workflow = given.pop("workflow", "trip_planning")
    setting = {"workflow": workflow, "run_id": given.pop("run_id", f"run-{uuid4().hex[:8]}"), "on_behalf_of": given.pop("subject", "ada")}
    setting["context"] = given.pop("context", {"requestVersion": "1"} if workflow == "trip_booking" else {})
    assert not given, f"not a setting: {given}"
    return {name: value for name, value in setting.items() if value is not None}


@pytest.fixture
def edit(copied_bundle: Path) -> Callable[..., None]:
    """Changes top-level fields of a YAML file of the copied bundle."""

    def change(file: str, **fields: Any) -> None:
        path = copied_bundle / file
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | fields, sort_keys=False))

    return change


@pytest.fixture
def add_tool(copied_bundle: Path) -> Callable[..., None]:
    """Adds a tool that runs a function of this suite, allowed by a policy of its own: reads in trip_planning, writes in trip_booking."""

    def add(name: str, function: str, **fields: Any) -> None:
        declaration: dict[str, Any] = {
            "name": name,
            "title": "A tool of the suite",
            "description": "A tool of the suite.",
            "risk": "read",
            "permissions": ["hotel:read"],
            "parameters": {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}},
            "execute": {"python": f"tests.fakes.functions:{function}"},
        }
        (copied_bundle / "tools" / f"{name}.yaml").write_text(yaml.safe_dump(declaration | fields, sort_keys=False))
        workflows = yaml.safe_load((copied_bundle / "workflows.yaml").read_text())
        workflows["trip_planning" if fields.get("risk", "read") == "read" else "trip_booking"]["tools"].append(name)
        (copied_bundle / "workflows.yaml").write_text(yaml.safe_dump(workflows, sort_keys=False))
        policy = f'package policies.suite.{name}\n\nimport rego.v1\n\nallow contains "POLICY_ALLOWED" if input.tool.name == "{name}"\n'
        folder = copied_bundle / "rego" / "suite"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.rego").write_text(policy)

    return add


@asynccontextmanager
async def serving(*args: str, **environment: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """A serving process and its ready line (empty where it ended before it was ready)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", *args,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ) | environment,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        yield process, json.loads(line) if line else {}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
