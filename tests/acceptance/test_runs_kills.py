"""kill -9 in each phase of one run: another gateway goes on from what is stored, and one booking stands at the end."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.acceptance.conftest import Gateway, Travel, serving
from tests.acceptance.runs import of_type, run_body, stream, types
from tests.fakes.gemini import KEY, calls, run_gemini, text

BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}


async def test_one_run_survives_a_kill_in_each_of_its_phases(  # noqa: PLR0915 - one run, phase by phase
    copied_bundle: Path, data_dir: Path, tmp_path: Path, travel: Travel, edit: Any
):
    edit("tools/book_hotel.yaml", timeout="2s")  # its lease is over sooner
    config = tmp_path / "gateway.yaml"
    config.write_text(yaml.safe_dump({"runs": {"lease_s": 4}}))
    script = [calls(("search_hotels", {"city": "Paris, France"})), calls(("book_hotel", BOOKING)), text("Booked.")]
    async with run_gemini(script) as gemini, aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        environment = {"GEMINI_API_KEY": KEY, "GATEWAY_GEMINI_BASE_URL": gemini.url, "TRAVEL_API": travel.url}
        args = ("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir), "--config", str(config))

        async def start() -> tuple[asyncio.subprocess.Process, Gateway]:
            process, ready = await stack.enter_async_context(serving(*args, **environment))
            assert ready, (await process.communicate())[1].decode()
            return process, Gateway(url=ready["url"], session=session, travel=travel, revision=ready["revision"])

        for turn in (0, 2):
            gemini.hold[turn] = asyncio.Event()
        current, gateway = await start()

        async def kill_and_go_on(when: Callable[[], Awaitable[Any]] | None = None) -> None:
            """The next gateway is up before this one dies, as in a fleet; the embedded database has somebody to belong to."""
            nonlocal current, gateway
            following = await start()
            if when is not None:
                await when()
            current.kill()
            await current.wait()
            current, gateway = following

        # While the model is asked.
        async with stream(gateway, "POST", "/v1/runs", run_body("Book it", workflow="trip_booking")) as opened:
            run_id = (await opened.read("run.started"))[0]["run_id"]
        await _until(lambda: gemini.asked[0] == 1)
        await kill_and_go_on()
        await _until(lambda: gemini.asked[0] == 2)
        # While a read runs, its turn stored.
        await gateway.fault("GET", "/hotels", "hang_after_apply")

        async def until_the_read_runs() -> None:
            gemini.hold[0].set()
            await _read(gateway, run_id, "call.decided")

        await kill_and_go_on(until_the_read_runs)
        # While a person is asked.
        asked = (await _read(gateway, run_id, "approval.required"))[-1]
        await kill_and_go_on()
        # While the booking runs: the service has done it, and its answer never comes.
        await gateway.fault("POST", "/bookings", "hang_after_apply")
        status, _ = await gateway.post(f"/v1/approvals/{asked['approval_id']}/approve", {}, key="dev-approver-key")
        assert status == 200
        await _until(lambda: "POST /bookings" in travel.arrivals)
        await kill_and_go_on()
        # While the model is asked for its last turn.
        await _until(lambda: gemini.asked[2] == 1, seconds=60)
        await kill_and_go_on()
        await _until(lambda: gemini.asked[2] == 2)
        gemini.hold[2].set()

        events = await _read(gateway, run_id, "run.finished")
        async with session.get(travel.url + "/bookings") as response:
            assert len(await response.json()) == 1
        # A stored turn is never asked for again; a question without an answer is asked by whoever goes on.
        assert gemini.asked[1] == 1
        assert [event["id"] for event in events] == list(range(1, len(events) + 1))
        assert Counter(types(events)) == Counter(
            {
                "run.started": 1,
                "model.called": 3,
                "call.decided": 3,
                "call.finished": 2,
                "approval.required": 1,
                "answer": 1,
                "run.finished": 1,
            }
        )
        told = {event["turn"]: (event["status"], event["reason_code"]) for event in of_type(events, "call.finished")}
        assert told == {0: ("failed", "ABANDONED"), 1: ("ok", "EXECUTION_SUCCEEDED")}
        _, run = await gateway.get(f"/v1/runs/{run_id}")
        assert (run["state"], run["answer"], run["model_calls"]) == ("answered", "Booked.", sum(gemini.asked.values()))
        current.terminate()
        assert await asyncio.wait_for(current.wait(), 30) == 0


async def test_nothing_runs_twice_where_a_gateway_dies_between_two_steps(
    database_url: str, copied_bundle: Path, data_dir: Path, tmp_path: Path, travel: Travel
):
    workflows = yaml.safe_load((copied_bundle / "workflows.yaml").read_text())
    workflows["trip_planning"]["tools"] = sorted({*workflows["trip_planning"]["tools"], "open_screen"})
    (copied_bundle / "workflows.yaml").write_text(yaml.safe_dump(workflows, sort_keys=False))
    config = tmp_path / "gateway.yaml"
    config.write_text(yaml.safe_dump({"runs": {"lease_s": 2}, "python_modules": ["tests.fakes.dying_runs"]}))
    script = [calls(("search_hotels", {"city": "Paris, France"})), calls(("open_screen", {"screen": "hotel/h1"})), text("Done.")]
    async with run_gemini(script) as gemini, aiohttp.ClientSession() as session:
        args = ("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir), "--config", str(config))
        environment = {
            "GEMINI_API_KEY": KEY, "GATEWAY_GEMINI_BASE_URL": gemini.url, "TRAVEL_API": travel.url, "GATEWAY_DATABASE_URL": database_url
        }  # fmt: skip

        def known(ready: dict[str, Any]) -> Gateway:
            return Gateway(url=ready["url"], session=session, travel=travel, revision=ready["revision"])

        # Its turn is stored, and no call of it governed.
        async with serving(*args, **environment, KILL_RUN_AT="turn_stored") as (process, ready):
            async with stream(known(ready), "POST", "/v1/runs", run_body()) as opened:
                run_id = (await opened.read("run.started"))[0]["run_id"]
            assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
        assert travel.arrivals == []
        # The round is closed, and its reply not stored.
        async with serving(*args, **environment, KILL_RUN_AT="round_closed") as (process, _):
            assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        assert travel.arrivals == ["GET /hotels?city=Paris%2C%20France"]
        # The client has been handed its call.
        async with serving(*args, **environment) as (process, ready):
            handed = (await _read(known(ready), run_id, "client.required"))[-1]
            process.kill()
            await process.wait()
        async with serving(*args, **environment) as (_, ready):
            gateway = known(ready)
            status, _ = await gateway.post(f"/v1/executions/{handed['execution_id']}/result", {"status": "ok"})
            assert status == 200
            events = await _read(gateway, run_id, "run.finished")
    assert [gemini.asked[turn] for turn in range(3)] == [1, 1, 1]
    assert travel.arrivals == ["GET /hotels?city=Paris%2C%20France"]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert types(of_type(events, "client.required")) == ["client.required"]
    assert [(event["turn"], event["status"]) for event in of_type(events, "call.finished")] == [(0, "ok"), (1, "ok")]
    told = [request["contents"][-1]["parts"][0]["functionResponse"]["response"]["status"] for request in gemini.requests[1:]]
    assert told == ["ok", "ok"]


async def test_a_gateway_that_stops_hands_its_runs_over(copied_bundle: Path, data_dir: Path, tmp_path: Path, travel: Travel):
    config = tmp_path / "gateway.yaml"
    config.write_text(yaml.safe_dump({"runs": {"lease_s": 300}}))  # longer than this test waits
    async with run_gemini([text("Done.")]) as gemini, aiohttp.ClientSession() as session:
        gemini.hold[0] = asyncio.Event()
        environment = {"GEMINI_API_KEY": KEY, "GATEWAY_GEMINI_BASE_URL": gemini.url, "TRAVEL_API": travel.url}
        args = ("--dev", "--bundle", str(copied_bundle), "--port", "0", "--data-dir", str(data_dir), "--config", str(config))
        async with serving(*args, **environment) as (first, ready), serving(*args, **environment) as (_, other):
            gateway = Gateway(url=ready["url"], session=session, travel=travel, revision=ready["revision"])
            async with stream(gateway, "POST", "/v1/runs", run_body()) as opened:
                run_id = (await opened.read("run.started"))[0]["run_id"]
                await _until(lambda: gemini.asked[0] == 1)
                first.terminate()
                # Handed over, it goes on at once, and the stream ends in order.
                assert types(await opened.read()) == ["run.started"]
                assert await asyncio.wait_for(first.wait(), 30) == 0
            await _until(lambda: gemini.asked[0] == 2, seconds=30)
            gemini.hold[0].set()
            gateway = Gateway(url=other["url"], session=session, travel=travel, revision=other["revision"])
            assert types(await _read(gateway, run_id, "run.finished"))[-1] == "run.finished"


async def _read(gateway: Gateway, run_id: str, until: str) -> list[dict[str, Any]]:
    async with stream(gateway, "GET", f"/v1/runs/{run_id}/events") as opened:
        return await opened.read(until, seconds=60)


async def _until(holds: Callable[[], bool], *, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what it waits for is in another process
            await asyncio.sleep(0.05)
