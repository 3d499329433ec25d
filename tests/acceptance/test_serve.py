"""``gateway serve`` as a process: ready line, clean stop that lets work end, refusals that say why."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp

from gateway.client import GatewayClient
from tests.acceptance.conftest import serving

PARIS = {"city": "Paris, France"}


async def _stop(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    return await asyncio.wait_for(process.wait(), 30)


async def test_serves_the_client_until_sigterm_and_exits_0(travel_bundle: Path, data_dir: Path):
    async with serving("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, ready):
        assert ready["event"] == "listening"
        setting: dict[str, Any] = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada"}
        async with GatewayClient(ready["url"], "dev-agent-key", **setting) as client:
            answer = await client.call("search_hotels", PARIS, id="fc-1")
            assert (answer.result.status, answer.call.id) == ("ok", "fc-1")
            answers = await client.round([{"name": "search_hotels", "args": PARIS}, {"name": "nope"}])
            assert [each.result.status for each in answers.results] == ["ok", "blocked"]
            assert len(await client.tools(format="gemini")) == 1
        assert await _stop(process) == 0
        assert not (data_dir / "postgres" / "postmaster.pid").exists()


async def test_lets_a_running_execution_end_before_it_stops(travel_bundle: Path, data_dir: Path):
    async with serving("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, ready):
        headers = {"Authorization": "Bearer dev-token"}
        body = {"workflow": "trip_planning", "run_id": "r1", "on_behalf_of": "ada", "call": {"name": "search_hotels", "args": PARIS}}
        async with aiohttp.ClientSession() as session:
            order = {"method": "GET", "path": "/hotels", "mode": "slow"}
            async with session.post(ready["sample_service"] + "/faults", json=order, headers=headers) as armed:
                assert armed.status < 300
            running = asyncio.create_task(_post(session, ready["url"] + "/v1/calls", body))
            await asyncio.sleep(0.5)
            stopping = asyncio.create_task(_stop(process))
            assert (await running)["result"]["status"] == "ok"
            assert await stopping == 0


async def _post(session: aiohttp.ClientSession, url: str, body: Any) -> Any:
    async with session.post(url, json=body, headers={"Authorization": "Bearer dev-agent-key"}) as response:
        return await response.json()


async def test_a_bundle_that_fails_never_starts_the_server(copied_bundle: Path, data_dir: Path):
    (copied_bundle / "workflows.yaml").write_text("trip_planning: {tools: [no_such_tool], max_risk: read}\n")
    async with serving("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, ready):
        assert ready == {}
        _, stderr = await process.communicate()
        assert process.returncode == 3
        assert b"not valid" in stderr
    assert not (data_dir / "postgres").exists()


async def test_says_what_is_missing_without_dev(travel_bundle: Path, data_dir: Path, tmp_path: Path):
    config = tmp_path / "gateway.yaml"
    config.write_text("keys:\n  - {secret: {env: NO_SUCH_KEY}, roles: [agent], agent: travel-assistant}\n")
    async with serving("--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, _):
        _, stderr = await process.communicate()
        assert (process.returncode, b"no connection named travel" in stderr) == (2, True)
    connections = "connections:\n  travel: {origin: 'http://127.0.0.1:9', internal: true}\n"
    config.write_text(config.read_text() + connections)
    async with serving("--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir), "--config", str(config)) as (process, _):
        _, stderr = await process.communicate()
        assert (process.returncode, b"NO_SUCH_KEY is not set" in stderr) == (2, True)


async def test_accepts_configured_keys_only_and_refuses_another_revision(copied_bundle: Path, data_dir: Path, tmp_path: Path):
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "keys:\n  - {secret: {env: AGENT_KEY}, roles: [agent], agent: travel-assistant}\n"
        "connections:\n  travel: {origin: 'http://127.0.0.1:9', internal: true}\n"
    )
    args = ("--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir), "--config", str(config))
    async with serving(*args, AGENT_KEY="a-configured-key") as (process, ready), aiohttp.ClientSession() as session:
        for key, status in (("a-configured-key", 400), ("dev-agent-key", 401)):
            async with session.post(ready["url"] + "/v1/calls", json={}, headers={"Authorization": f"Bearer {key}"}) as response:
                assert response.status == status
        assert await _stop(process) == 0
    (copied_bundle / "budgets.yaml").write_text("[]\n")
    async with serving(*args, AGENT_KEY="a-configured-key") as (process, _):
        _, stderr = await process.communicate()
        assert (process.returncode, b"another revision is active" in stderr) == (1, True)
    async with serving("--dev", *args) as (process, _):
        _, stderr = await process.communicate()
        assert (process.returncode, b"not made by --dev" in stderr) == (1, True)


async def test_a_policy_that_is_too_slow_is_a_finding_of_check_and_of_serve(copied_bundle: Path, data_dir: Path):
    loops = "".join(f"\tsome {name} in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n" for name in "abcde")
    rule = f'deny contains "POLICY_DENIED" if {{\n{loops}\t(((a + b) + c) + d) + e == 61\n}}\n'
    (copied_bundle / "rego" / "slow.rego").write_text(f"package policies.travel.slow\n\n{rule}")
    check = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "check", str(copied_bundle), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await check.communicate()
    assert (check.returncode, b"rego: error policy-no-decision" in stdout, b"Traceback" in stderr) == (3, True, False)
    async with serving("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir)) as (process, _):
        _, stderr = await process.communicate()
        assert (process.returncode, b"policy-no-decision" in stderr) == (3, True)


async def test_a_port_that_is_taken_is_named(travel_bundle: Path, data_dir: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with serving("--dev", "--bundle", str(travel_bundle), "--port", port, "--data-dir", str(data_dir)) as (process, _):
            _, stderr = await process.communicate()
        sentence = f"gateway: port {port} of 127.0.0.1 is in use; choose another one with --port"
        assert (process.returncode, sentence in stderr.decode()) == (1, True)


async def test_a_database_that_does_not_answer_is_named_without_its_password(travel_bundle: Path, tmp_path: Path):
    config = tmp_path / "gateway.yaml"
    config.write_text("connections:\n  travel: {origin: 'http://127.0.0.1:9', internal: true}\n")
    url = "postgresql://somebody:s3cret@127.0.0.1:9/ledger"
    async with serving("--bundle", str(travel_bundle), "--port", "0", "--config", str(config), "--database-url", url) as (process, _):
        _, stderr = await process.communicate()
    assert (process.returncode, stderr.decode()) == (
        10,
        "gateway: the database at 127.0.0.1:9/ledger does not answer as needed: ConnectionRefusedError\n",
    )


async def test_says_nothing_on_stderr_where_nothing_is_wrong(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir))
    async with serving(*args, XDG_RUNTIME_DIR="") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (0, b"")


async def test_a_killed_gateway_does_not_keep_its_database_running_after_the_next_one_stops(travel_bundle: Path, data_dir: Path):
    args = ("--dev", "--bundle", str(travel_bundle), "--port", "0", "--data-dir", str(data_dir))
    async with serving(*args) as (first, _), serving(*args) as (second, _):
        first.kill()
        await first.wait()
        assert (data_dir / "postgres" / "postmaster.pid").exists()
        assert await _stop(second) == 0
    assert not (data_dir / "postgres" / "postmaster.pid").exists()
