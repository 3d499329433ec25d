import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.domain.outcome import Phase
from gateway.executors.connections import Connection
from gateway.executors.http import HttpExecutor
from gateway.sample.travel import create_app
from tests.fakes.invocations import declare_http_tool, deliver, invoke

TOKEN = {"Authorization": "Bearer dev-token"}
BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}


class Client:
    """Short ways to ask the service."""

    def __init__(self, session: aiohttp.ClientSession, origin: str) -> None:
        self.session = session
        self.origin = origin

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.session.request(method, self.origin + path, json=body, headers={**TOKEN, **headers}) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.ask("GET", path)
        assert status == 200
        return answer

    async def order_fault(self, method: str, path: str, mode: str) -> None:
        status, _ = await self.ask("POST", "/faults", {"method": method, "path": path, "mode": mode})
        assert status == 201


@pytest.fixture
async def travel() -> AsyncIterator[Client]:
    runner = web.AppRunner(create_app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


async def test_finds_hotels_by_city_and_price(travel: Client):
    assert (await travel.get("/hotels?city=Paris, France&max_price=180"))["matches"][0] == {
        "hotelId": "h1",
        "name": "Hotel Lumière",
        "nightlyUsd": 180,
    }
    for city in ("Paris, France", "Rome, Italy"):
        matches = (await travel.get(f"/hotels?city={city}"))["matches"]
        assert len(matches) == 6
        assert all(90 <= match["nightlyUsd"] <= 400 for match in matches)
        cheap = (await travel.get(f"/hotels?city={city}&max_price=150"))["matches"]
        assert cheap == [match for match in matches if match["nightlyUsd"] <= 150]
    assert await travel.get("/hotels?city=Atlantis") == {"matches": []}
    assert (await travel.ask("GET", "/hotels?max_price=cheap"))[0] == 400


async def test_writes_and_faults_want_the_token(travel: Client):
    for method, path in (("POST", "/bookings"), ("DELETE", "/bookings/b-1"), ("POST", "/notifications"), ("POST", "/faults")):
        status, _ = await travel.ask(method, path, {}, Authorization="Bearer other")
        assert status == 401


async def test_books_probes_and_cancels(travel: Client):
    status, booking = await travel.ask("POST", "/bookings", BOOKING, **{"Idempotency-Key": "key-1"})
    assert status == 201
    assert booking == {**BOOKING, "bookingRef": booking["bookingRef"], "chargedUsd": 200, "status": "confirmed"}
    reference = booking["bookingRef"]
    assert await travel.get("/bookings") == [booking]
    assert await travel.get("/bookings/by-reference/key-1") == booking
    assert await travel.get(f"/bookings/by-reference/{reference}") == booking
    assert await travel.ask("DELETE", f"/bookings/{reference}") == (200, {**booking, "status": "cancelled"})
    assert await travel.get("/bookings") == []
    for path in (f"/bookings/by-reference/{reference}", "/bookings/by-reference/key-1"):
        assert (await travel.ask("GET", path))[0] == 404
    assert (await travel.ask("DELETE", f"/bookings/{reference}"))[0] == 404


async def test_the_same_idempotency_key_books_once(travel: Client):
    first = await travel.ask("POST", "/bookings", BOOKING, **{"Idempotency-Key": "key-1"})
    assert await travel.ask("POST", "/bookings", BOOKING, **{"Idempotency-Key": "key-1"}) == first
    other = await travel.ask("POST", "/bookings", {**BOOKING, "totalUsd": 201}, **{"Idempotency-Key": "key-1"})
    assert other[0] == 422
    assert len(await travel.get("/bookings")) == 1
    await travel.ask("POST", "/bookings", BOOKING)
    await travel.ask("POST", "/bookings", BOOKING)
    assert len(await travel.get("/bookings")) == 3


@pytest.mark.parametrize("change", [{"hotelId": "h99"}, {"totalUsd": 0}, {"totalUsd": "200"}, {"totalUsd": True}])
async def test_refuses_a_booking_that_makes_no_sense(travel: Client, change: dict[str, Any]):
    assert (await travel.ask("POST", "/bookings", {**BOOKING, **change}))[0] == 422
    assert (await travel.ask("POST", "/bookings", [BOOKING]))[0] == 400
    assert await travel.get("/bookings") == []


async def test_never_repeats_a_card_token(travel: Client):
    await travel.ask("POST", "/bookings", {**BOOKING, "cardToken": "FAKE-1"})
    assert "FAKE" not in json.dumps(await travel.get("/bookings"))


async def test_keeps_notifications_and_knows_any_itinerary(travel: Client):
    status, sent = await travel.ask("POST", "/notifications", {"to": "ada", "text": "Gate 4"})
    assert (status, sent) == (201, {"notificationId": sent["notificationId"], "to": "ada", "text": "Gate 4"})
    assert await travel.get("/notifications") == [sent]
    assert (await travel.get("/itineraries/it-77"))["itineraryId"] == "it-77"


FAULTS = {
    "hang_after_apply": (Phase.LOST, "timeout", 1),
    "reset_after_apply": (Phase.LOST, "reset", 1),
    "reset_before_apply": (Phase.LOST, "reset", 0),
    "error_500": (Phase.ANSWERED, None, 0),
    "slow": (Phase.LOST, "timeout", 0),
}


@pytest.mark.parametrize("mode", FAULTS)
async def test_a_fault_on_order_happens_once_as_it_says(travel: Client, mode: str):
    await travel.order_fault("POST", "/bookings", mode)
    connection = Connection(name="travel", origin=travel.origin, internal=True, credential=lambda: "dev-token")
    executor = HttpExecutor({"travel": connection})
    tool = declare_http_tool("POST", "/bookings", connection="travel", risk="irreversible", body={"json": "args"}, timeout="300ms")
    faulty = await deliver(executor, invoke(tool, BOOKING))
    applied = len(await travel.get("/bookings"))
    assert (faulty.phase, faulty.problem, applied) == FAULTS[mode]
    assert (await deliver(executor, invoke(tool, BOOKING))).status == 201
    await executor.close()


async def test_a_fault_may_name_a_path_or_a_route(travel: Client):
    _, booking = await travel.ask("POST", "/bookings", BOOKING)
    path = f"/bookings/{booking['bookingRef']}"
    for named in (path, "/bookings/{ref}"):
        await travel.order_fault("DELETE", named, "error_500")
        assert (await travel.ask("DELETE", path))[0] == 500
    assert (await travel.ask("DELETE", path))[0] == 200
    assert (await travel.ask("POST", "/faults", {"method": "GET", "path": "/hotels", "mode": "explode"}))[0] == 400


async def test_runs_as_a_process_that_ends_in_order():
    code = "from gateway.cli.sample import sample_travel; sample_travel()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, "--port", "0", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        assert line.keys() == {"event", "url"}
        assert line["event"] == "listening"
        async with aiohttp.ClientSession() as session, session.get(line["url"] + "/hotels?city=Rome, Italy") as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
