"""``gateway serve --workers``: several processes on one port, watched by one parent."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
from aiohttp import web

from gateway.sample.travel import create_app as create_travel
from tests.acceptance.conftest import serving

CONNECTIONS = 32
"""That all of them reach one of two workers has a chance of one in two billion."""


def workers_of(process: asyncio.subprocess.Process) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children() if "--worker-line" in child.cmdline()}


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.05)


async def answers_by_worker(url: str, workers: set[int]) -> list[int]:
    """How many of many connections each worker answers."""
    port = urlsplit(url).port
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        return [
            sum(
                found.laddr.port == port and found.status == psutil.CONN_ESTABLISHED for found in psutil.Process(pid).net_connections("tcp")
            )
            for pid in workers
        ]


async def stop(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    return await asyncio.wait_for(process.wait(), 40)


async def search(session: aiohttp.ClientSession, url: str) -> Any:
    body = {
        "workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada",
        "call": {"name": "search_hotels", "args": {"city": "Paris, France"}},
    }  # fmt: skip
    async with session.post(url + "/v1/calls", json=body, headers={"Authorization": "Bearer dev-agent-key"}) as response:
        return (await response.json())["result"]["status"]


async def test_two_workers_answer_on_one_port_and_one_that_is_killed_is_replaced(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir), "--workers", "2")
    async with serving(*args) as (process, ready), aiohttp.ClientSession() as session:
        url, workers = ready["url"], workers_of(process)
        assert (ready["event"], len(workers)) == ("listening", 2)
        answered = await answers_by_worker(url, workers)
        assert sum(answered) == CONNECTIONS
        assert all(answered), answered

        killed = min(workers)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not psutil.pid_exists(killed))
        assert await answers_by_worker(url, workers - {killed}) == [CONNECTIONS]
        assert await search(session, url) == "ok"

        await until(lambda: len(workers_of(process)) == 2)
        replaced = workers_of(process)
        (new,) = replaced - workers
        await until(lambda: any(found.status == psutil.CONN_LISTEN for found in psutil.Process(new).net_connections("tcp")))
        assert all(await answers_by_worker(url, replaced))
        assert await search(session, url) == "ok"

        assert await stop(process) == 0
        assert not any(psutil.pid_exists(pid) for pid in replaced)
        assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_a_running_execution_ends_before_its_worker_and_its_database_do(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir), "--workers", "2")
    async with serving(*args) as (process, ready), aiohttp.ClientSession() as session:
        order = {"method": "GET", "path": "/hotels", "mode": "slow"}
        headers = {"Authorization": "Bearer dev-token"}
        async with session.post(ready["sample_service"] + "/faults", json=order, headers=headers) as armed:
            assert armed.status < 300
        running = asyncio.create_task(search(session, ready["url"]))
        await asyncio.sleep(0.5)
        stopping = asyncio.create_task(stop(process))
        assert (await running, await stopping) == ("ok", 0)
        assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_workers_do_not_outlive_their_parent(travel_bundle: Path, database_url: str):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--workers", "2")
    async with serving(*args, GATEWAY_DATABASE_URL=database_url) as (process, _):
        workers = workers_of(process)
        assert len(workers) == 2
        process.kill()
        await process.wait()
        await until(lambda: not any(psutil.pid_exists(pid) for pid in workers))


async def test_told_to_stop_while_it_starts_it_ends_in_order(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir), "--workers", "2")
    before = set(psutil.Process().children())

    async def stop_with_the_first_worker() -> None:
        await until(lambda: bool(set(psutil.Process().children()) - before))
        (parent,) = set(psutil.Process().children()) - before
        await until(lambda: any("--worker-line" in child.cmdline() for child in parent.children()))
        parent.terminate()

    stopping = asyncio.create_task(stop_with_the_first_worker())
    async with serving(*args) as (process, ready):
        await stopping
        assert (await process.wait(), ready) == (0, {})
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_what_is_wrong_with_a_bundle_is_said_once(copied_bundle: Path, data_dir: Path):
    (copied_bundle / "workflows.yaml").write_text("trip_planning: {tools: [no_such_tool], max_risk: read}\n")
    args = ("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir), "--workers", "3")
    async with serving(*args) as (process, ready):
        _, stderr = await process.communicate()
    assert (ready, process.returncode, stderr.count(b"not valid")) == ({}, 3, 1)
    assert not (data_dir / "postgres").exists()


async def test_a_port_of_somebody_else_is_not_shared(travel_bundle: Path, data_dir: Path):
    # Another gateway with workers would let us share its port.
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        args = ("--dev", "--bundle", str(travel_bundle), "--port", str(port), "--data-dir", str(data_dir), "--workers", "2")
        async with serving(*args) as (process, ready):
            _, stderr = await process.communicate()
    assert (ready, process.returncode) == ({}, 1)
    assert f"port {port} of 127.0.0.1 is in use".encode() in stderr


async def test_a_running_sample_service_is_used_by_all_workers(travel_bundle: Path, database_url: str):
    arrivals: list[str] = []
    app = create_travel()

    async def note(request: web.Request, _: web.StreamResponse) -> None:
        arrivals.append(request.path)

    app.on_response_prepare.append(note)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    travel = f"http://127.0.0.1:{runner.addresses[0][1]}"
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--workers", "2")
    try:
        async with serving(*args, GATEWAY_DATABASE_URL=database_url, TRAVEL_API=travel) as (process, ready):
            assert ready["sample_service"] == travel
            for _ in range(8):
                async with aiohttp.ClientSession() as session:
                    assert await search(session, ready["url"]) == "ok"
            assert await stop(process) == 0
    finally:
        await runner.cleanup()
    assert arrivals == ["/hotels"] * 8
