"""The same call from many sides at once: over workers of one port and gateways of one database, and from two tenants."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gateway.app import Running, check
from gateway.sample.travel import create_app as create_travel
from tests.acceptance.conftest import Gateway, OpenGateway, new_key, serving

COUNT = 50
PARIS = {"city": "Paris, France"}


async def _ask(url: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
    # A connection each: the kernel gives it to one of the processes.
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.post(url + "/v1/calls", json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_workers_of_one_port_and_another_gateway_on_one_database_are_one(travel_bundle: Path, database_url: str):
    """Case 14: fifty equal calls have one effect and one decision, nobody gets an error, and the budget is charged once."""
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(create_travel(), shutdown_timeout=0.2)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        travel = f"http://127.0.0.1:{runner.addresses[0][1]}"
        args = ("--dev", "--bundle", str(travel_bundle), "--port", "0")
        shared = {"GATEWAY_DATABASE_URL": database_url, "TRAVEL_API": travel}
        _, crew = await stack.enter_async_context(serving(*args, "--workers", "2", **shared))
        _, alone = await stack.enter_async_context(serving(*args, **shared))
        session = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": "Bearer dev-token"}))
        async with session.post(travel + "/faults", json={"method": "POST", "path": "/notifications", "mode": "slow"}) as armed:
            assert armed.status < 300

        call = {"name": "send_notification", "args": {"to": "cy", "text": "Gate B7"}, "idempotency_key": new_key()}
        body = {"workflow": "trip_alerts", "run_id": "r1", "on_behalf_of": "cy", "call": call}
        urls = (crew["url"], crew["url"], alone["url"])
        told = await asyncio.gather(*(_ask(urls[number % 3], body, "dev-alerts-key") for number in range(COUNT)))

        assert {status for status, _ in told} == {200}
        assert {answer["result"]["status"] for _, answer in told} <= {"ok", "in_progress"}
        assert len({answer["decision_id"] for _, answer in told}) == 1
        assert sum(not answer["replayed"] for _, answer in told) == 1
        async with session.get(travel + "/notifications") as response:
            assert len(await response.json()) == 1
        async with session.get(alone["url"] + "/v1/budgets", headers={"Authorization": "Bearer dev-operator-key"}) as response:
            (row,) = [row for row in (await response.json())["items"] if row["name"] == "run_calls"]
            assert (row["spent"], row["reserved"]) == ("1", "0")


async def test_two_tenants_share_no_key_no_answer_and_no_lock(open_with: OpenGateway, travel_bundle: Path, tmp_path: Path):
    """Case 18: the same agent name, key and arguments in another tenant are another call."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"the-key-of-tenant-{name}")
    keys = [
        {"secret": {"file": str(tmp_path / name)}, "roles": ["agent", "auditor"], "agent": "travel-assistant", "tenant": tenant}
        for name, tenant in (("one", "default"), ("two", "t-2"))
    ]

    async def activate_for_the_other(running: Running) -> None:
        checked = (await check(travel_bundle)).checked
        assert checked is not None
        await running.revisions.activate("t-2", checked, by="the suite", replaces=None)

    gateway = await open_with(travel_bundle, keys=keys, prepare=activate_for_the_other)
    shared = new_key()

    async def ask(name: str, city: str) -> Any:
        return await gateway.call("search_hotels", {"city": city}, key=f"the-key-of-tenant-{name}", idempotency_key=shared, run_id="r1")

    first, other = await asyncio.gather(ask("one", "Paris, France"), ask("two", "Rome, Italy"))
    assert (first["result"]["status"], other["result"]["status"]) == ("ok", "ok")
    assert (first["replayed"], other["replayed"]) == (False, False)
    assert first["result"]["data"] != other["result"]["data"]
    assert len(gateway.travel.arrivals) == 2
    again = await ask("two", "Rome, Italy")
    assert (again["decision_id"], again["replayed"], again["result"]) == (other["decision_id"], True, other["result"])
    await _sees_only_its_own(gateway, {"one": first["decision_id"], "two": other["decision_id"]})


async def _sees_only_its_own(gateway: Gateway, decisions: dict[str, str]) -> None:
    for name in decisions:
        for owner, decision_id in decisions.items():
            for path in (f"/v1/calls/{decision_id}", f"/v1/decisions/{decision_id}"):
                status, _ = await gateway.get(path, key=f"the-key-of-tenant-{name}")
                assert status == (200 if name == owner else 404), (name, owner, path)
