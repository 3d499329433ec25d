"""People and clients inside a run: an approval and a client tool over one connection, and what comes of every answer."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import Gateway, OpenGateway
from tests.acceptance.runs import Stream, of_type, run_body, stream, types
from tests.fakes.gemini import KEY, GeminiServer, calls, run_gemini, text

APPROVER = "dev-approver-key"
PARIS = {"city": "Paris, France"}
BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}


@pytest.fixture
def bundle_with_screens(copied_bundle: Path) -> Path:
    """The travel bundle, where bookings may also open screens."""
    path = copied_bundle / "workflows.yaml"
    workflows = yaml.safe_load(path.read_text())
    workflows["trip_booking"]["tools"].append("open_screen")
    path.write_text(yaml.safe_dump(workflows, sort_keys=False))
    (copied_bundle / "cases" / "screens.yaml").unlink()  # says among others that bookings show no screens
    return copied_bundle


async def _open(open_with: OpenGateway, bundle: Path, gemini: GeminiServer, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    return await open_with(bundle, gemini_base_url=gemini.url)


async def _next(opened: Stream, type_: str) -> Any:
    return (await opened.read(type_))[-1]


async def test_three_rounds_with_an_approval_and_a_client_tool_over_one_connection(
    open_with: OpenGateway, bundle_with_screens: Path, monkeypatch: pytest.MonkeyPatch
):
    script = [
        calls(("search_hotels", PARIS, "fc-1")),
        calls(("book_hotel", BOOKING, "fc-2"), ("open_screen", {"screen": "hotel/h1"}), ("search_hotels", {"city": "Rome, Italy"})),
        calls(("get_itinerary", {"itineraryId": "it-1"})),
        text("Booked."),
    ]
    async with run_gemini(script) as gemini:
        gateway = await _open(open_with, bundle_with_screens, gemini, monkeypatch)
        async with stream(gateway, "POST", "/v1/runs", run_body("Book it", workflow="trip_booking")) as opened:
            screen = await _next(opened, "client.required")
            asked = of_type(opened.events, "approval.required")[0]
            assert (screen["kind"], screen["args"]) == ("screen", {"screen": "hotel/h1"})
            # The round is open: nothing of it is told to the model yet.
            assert gemini.asked[2] == 0
            _, shown = await gateway.get(f"/v1/approvals/{asked['approval_id']}", key=APPROVER)
            assert shown["arguments"] == BOOKING
            assert (await gateway.post(f"/v1/executions/{screen['execution_id']}/result", {"status": "ok", "data": {"shown": True}}))[
                0
            ] == 200
            assert (await gateway.post(f"/v1/approvals/{asked['approval_id']}/approve", {}, key=APPROVER))[0] == 200
            events = await opened.read()
    assert types(events)[-2:] == ["answer", "run.finished"]
    assert events[-1]["rounds"] == 3
    finished = {(event["turn"], event["position"]): event["status"] for event in of_type(events, "call.finished")}
    assert finished == {(0, 0): "ok", (1, 0): "ok", (1, 1): "ok", (1, 2): "ok", (2, 0): "ok"}
    decided = [
        (event["effect"], event["reason_code"])
        for event in of_type(events, "call.decided")
        if event["position"] == 0 and event["turn"] == 1
    ]
    assert decided == [("confirm", "CONFIRMATION_REQUIRED"), ("allow", "APPROVAL_GRANTED")]
    answers = [part["functionResponse"] for part in gemini.requests[2]["contents"][-1]["parts"]]
    assert [(answer["name"], answer["response"]["status"]) for answer in answers] == [
        ("book_hotel", "ok"),
        ("open_screen", "ok"),
        ("search_hotels", "ok"),
    ]
    assert gateway.travel.arrivals.count("POST /bookings") == 1


async def test_a_no_and_a_failed_client_close_the_round(open_with: OpenGateway, bundle_with_screens: Path, monkeypatch: pytest.MonkeyPatch):
    script = [calls(("book_hotel", BOOKING), ("open_screen", {"screen": "itinerary"})), text("Not booked.")]
    async with run_gemini(script) as gemini:
        gateway = await _open(open_with, bundle_with_screens, gemini, monkeypatch)
        async with stream(gateway, "POST", "/v1/runs", run_body("Book it", workflow="trip_booking")) as opened:
            screen = await _next(opened, "client.required")
            asked = of_type(opened.events, "approval.required")[0]
        # The answers come after the client has left the stream.
        assert (await gateway.post(f"/v1/executions/{screen['execution_id']}/result", {"status": "failed"}))[0] == 200
        assert (await gateway.post(f"/v1/approvals/{asked['approval_id']}/deny", {"comment": "Too expensive"}, key=APPROVER))[0] == 200
        run_id = opened.events[0]["run_id"]
        async with stream(gateway, "GET", f"/v1/runs/{run_id}/events", Last_Event_ID=str(opened.events[-1]["id"])) as later:
            events = await later.read()
    finished = {event["position"]: (event["status"], event["reason_code"]) for event in of_type(events, "call.finished")}
    assert finished[0] == ("blocked", "APPROVAL_DENIED")
    assert finished[1][0] == "failed"
    assert types(events)[-1] == "run.finished"
    assert "POST /bookings" not in gateway.travel.arrivals
