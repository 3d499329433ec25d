"""Runs whose model loop the gateway owns, with the real google-genai client against a server that speaks the wire."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Gateway, OpenGateway
from tests.acceptance.runs import of_type, run_body, run_to_end, stream, types
from tests.fakes.gemini import KEY, Broken, GeminiServer, calls, run_gemini, signatures, text, turn

PARIS = {"city": "Paris, France", "maxNightlyPriceUsd": 250}
ROME = {"city": "Rome, Italy"}


@pytest.fixture
async def gemini() -> AsyncGenerator[GeminiServer]:
    """The model."""
    async with run_gemini() as server:
        yield server


@pytest.fixture
def with_model(gemini: GeminiServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings that drive runs with that model."""
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    return {"gemini_base_url": gemini.url}


@pytest.fixture
async def gateway(open_with: OpenGateway, travel_bundle: Path, with_model: dict[str, Any]) -> Gateway:
    """A gateway over the travel bundle that has a model."""
    return await open_with(travel_bundle, **with_model)


async def test_answers_a_prompt_over_one_stream(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [
        calls(("search_hotels", PARIS, "fc-1"), ("search_hotels", ROME), ("search_hotels", {"city": 7}), ("rent_car", {})),
        calls(("get_itinerary", {"itineraryId": "it-1"}, "x" * 600)),
        text("Hotel Lumière, 180 USD."),
    ]
    events = await run_to_end(gateway, prompt="Find hotels in Paris under $250")
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert types(events)[0] == "run.started"
    assert types(events)[-2:] == ["answer", "run.finished"]
    assert [event["turn"] for event in of_type(events, "model.called")] == [0, 1, 2]
    decided = {(event["turn"], event["position"]): (event["effect"], event["reason_code"]) for event in of_type(events, "call.decided")}
    assert decided == {
        (0, 0): ("allow", "USER_REQUEST_MATCHED_TOOL_SCOPE"),
        (0, 1): ("allow", "USER_REQUEST_MATCHED_TOOL_SCOPE"),
        (0, 2): ("deny", "ARGUMENTS_INVALID"),
        (0, 3): ("deny", "TOOL_UNKNOWN"),
        (1, 0): ("allow", "USER_REQUEST_MATCHED_TOOL_SCOPE"),
    }
    finished = {(event["turn"], event["position"]): event for event in of_type(events, "call.finished")}
    assert {place: event["status"] for place, event in finished.items()} == {
        (0, 0): "ok",
        (0, 1): "ok",
        (0, 2): "invalid_arguments",
        (0, 3): "blocked",
        (1, 0): "ok",
    }
    assert (finished[0, 0]["call"], finished[0, 0]["title"]) == ({"name": "search_hotels", "id": "fc-1"}, "Search hotels")
    assert finished[0, 0]["progress"]
    assert of_type(events, "answer")[0]["text"] == "Hotel Lumière, 180 USD."
    assert {name: events[-1][name] for name in ("rounds", "model_calls", "tokens")} == {"rounds": 2, "model_calls": 3, "tokens": 300}
    for event in of_type(events, "call.finished"):
        assert (await gateway.decision(event["decision_id"]))["record"]["run_id"] == events[0]["run_id"]

    first, second, _ = gemini.requests
    declared = [each["name"] for tool in first["tools"] for each in tool["functionDeclarations"]]
    assert set(declared) >= {"search_hotels", "get_itinerary"}
    assert "book_hotel" not in declared
    # What the model wrote goes back as it was, and one content answers all its calls.
    assert second["contents"][1] == gemini.script[0]["candidates"][0]["content"]
    assert signatures(second["contents"][1]) == [(1, b"sig-\xfb\xff")]
    answers = [part["functionResponse"] for part in second["contents"][2]["parts"]]
    assert [(answer.get("id"), answer["name"], answer["response"]["status"]) for answer in answers] == [
        ("fc-1", "search_hotels", "ok"),
        (None, "search_hotels", "ok"),
        (None, "search_hotels", "invalid_arguments"),
        (None, "rent_car", "blocked"),
    ]


async def test_tells_how_a_run_stands_and_streams_its_events_again(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [calls(("search_hotels", PARIS)), text("Done.")]
    events = await run_to_end(gateway)
    run_id = events[0]["run_id"]
    status, run = await gateway.get(f"/v1/runs/{run_id}")
    assert status == 200
    expected = {"state": "answered", "reason_code": "RUN_ANSWERED", "answer": "Done.", "calls": 1, "last_event_id": events[-1]["id"]}
    assert {name: run[name] for name in expected} == expected
    async with stream(gateway, "GET", f"/v1/runs/{run_id}/events", Last_Event_ID="2") as again:
        assert await again.read() == events[2:]
    status, page = await gateway.get("/v1/runs", state="answered")
    assert [item["run_id"] for item in page["items"]] == [run_id]
    # Nothing of it is anybody else's.
    for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events"):
        assert (await gateway.get(path, key="dev-alerts-key"))[0] == 404
    assert (await gateway.get("/v1/runs", key="dev-alerts-key"))[1]["items"] == []
    async with gateway.session.post(f"{gateway.url}/v1/runs/{run_id}/resume", headers={"Authorization": "Bearer dev-agent-key"}) as refused:
        assert (refused.status, (await refused.json(content_type=None))["code"]) == (409, "RUN_ENDED")


async def test_goes_on_without_its_client(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [calls(("search_hotels", PARIS)), text("Done.")]
    gemini.hold[1] = asyncio.Event()
    async with stream(gateway, "POST", "/v1/runs", run_body()) as opened:
        events = await opened.read("call.finished")
    gemini.hold[1].set()
    async with stream(gateway, "GET", f"/v1/runs/{events[0]['run_id']}/events", Last_Event_ID=str(events[-1]["id"])) as later:
        rest = await later.read()
    assert types(rest) == ["model.called", "answer", "run.finished"]
    assert rest[0]["id"] == events[-1]["id"] + 1


async def test_one_key_starts_one_run(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [text("Done.")]
    ids: set[str] = set()
    for _ in range(2):
        async with stream(gateway, "POST", "/v1/runs", run_body(), Idempotency_Key="a-key-of-this-run") as opened:
            ids.add((await opened.read())[0]["run_id"])
    assert (len(ids), gemini.asked[0]) == (1, 1)
    status, problem = await gateway.post("/v1/runs", run_body("Something else"), headers={"Idempotency-Key": "a-key-of-this-run"})
    assert (status, problem["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.1s"}


async def test_asks_again_where_the_model_is_away(gateway: Gateway, gemini: GeminiServer):
    for broken in (
        Broken(status=429, times=2, then=text("Done."), headers={"Retry-After": "0"}),
        Broken(status=503, times=1, then=text("Done."), details=[RETRY_INFO]),
        Broken(status=500, times=1, then=text("Done.")),
    ):
        gemini.script, gemini.asked = [broken], Counter()
        events = await run_to_end(gateway)
        assert types(events) == ["run.started", *["model.retried"] * broken.times, "model.called", "answer", "run.finished"]
        assert events[1]["problem"].startswith(str(broken.status))
        assert events[-1]["model_calls"] == broken.times + 1


async def test_ends_where_the_model_stays_away_and_goes_on_when_asked_to(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [calls(("search_hotels", PARIS)), Broken(status=503, times=4, then=text("Done."), headers={"Retry-After": "0"})]
    events = await run_to_end(gateway)
    assert (events[-1]["type"], events[-1]["reason_code"], events[-1]["is_resumable"]) == ("run.failed", "MODEL_UNAVAILABLE", True)
    async with stream(gateway, "POST", f"/v1/runs/{events[0]['run_id']}/resume", Last_Event_ID=str(events[-1]["id"])) as resumed:
        rest = await resumed.read()
    assert types(rest) == ["model.called", "answer", "run.finished"]
    assert gemini.asked[0] == 1  # a stored turn is never asked for again
    assert len(gateway.travel.arrivals) == 1


async def test_ends_where_the_model_is_stopped_or_refuses(gateway: Gateway, gemini: GeminiServer):
    cases: list[tuple[Any, str]] = [
        (Broken(status=400, times=99), "MODEL_REFUSED"),
        (Broken(status=401, times=99), "MODEL_REFUSED"),
        (turn(None, finish="SAFETY"), "MODEL_STOPPED"),
        (turn([{"text": "I was about to"}], finish="PROHIBITED_CONTENT"), "MODEL_STOPPED"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "MODEL_STOPPED"),
    ]
    for said, end in cases:
        gemini.script = [said]
        events = await run_to_end(gateway)
        assert types(events)[-1] == "run.failed", said
        assert (events[-1]["reason_code"], events[-1]["is_resumable"]) == (end, False)
        assert "answer" not in types(events)


async def test_steers_a_model_whose_turn_cannot_be_used(gateway: Gateway, gemini: GeminiServer):
    cases: list[tuple[Any, str]] = [
        (turn(None, finish="MALFORMED_FUNCTION_CALL"), "MODEL_MALFORMED"),
        (turn([], finish="STOP"), "MODEL_SILENT"),
        (b"<html>not a model</html>", "MODEL_MALFORMED"),
        (calls(("search_hotels", PARIS), finish="MAX_TOKENS"), "MODEL_TRUNCATED"),
        (calls(*[("search_hotels", {"city": str(n)}) for n in range(65)]), "MODEL_MALFORMED"),
    ]
    for said, code in cases:
        gateway.travel.arrivals.clear()
        gemini.script = [said, calls(("search_hotels", PARIS)), text("Done.")]
        events = await run_to_end(gateway)
        assert [(event["turn"], event["reason_code"]) for event in of_type(events, "model.steered")] == [(0, code)], said
        assert types(events)[-1] == "run.finished"
        assert len(gateway.travel.arrivals) == 1  # of a turn that was cut off or too large, nothing ran
        gemini.script = [said] * 9
        events = await run_to_end(gateway)
        assert (events[-1]["type"], events[-1]["reason_code"]) == ("run.failed", code)
        assert len(of_type(events, "model.steered")) == 3


async def test_hostile_arguments_get_results_and_not_faults(gateway: Gateway, gemini: GeminiServer):
    said = (
        b'{"candidates":[{"content":{"role":"model","parts":['
        b'{"functionCall":{"name":"search_hotels","args":{"city":"Paris, France","maxNightlyPriceUsd":1e400}}},'
        b'{"functionCall":{"name":"search_hotels","args":{"city":"a\\u0000b"}}},'
        b'{"functionCall":{"name":"search_hotels","args":{"city":"\\ud83d"}}},'
        b'{"functionCall":{"name":"se\\u0000arch","args":[1]}},'
        b'{"functionCall":{"name":7}}'
        b']},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":-3}}'
    )
    # The script's check of signatures is for turns that were scripted as documents.
    gemini.script = [said, text("Done.")]
    gemini.is_strict = False
    events = await run_to_end(gateway)
    codes = [event["reason_code"] for event in of_type(events, "call.finished")]
    assert codes == ["ARGUMENTS_INVALID", "ARGUMENTS_INVALID", "ARGUMENTS_INVALID", "TOOL_UNKNOWN", "CALL_NAME_MISSING"]
    assert (types(events)[-1], gateway.travel.arrivals) == ("run.finished", [])


async def test_a_model_that_repeats_itself_is_told_and_then_stopped(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [calls(("search_hotels", PARIS))] * 9
    events = await run_to_end(gateway)
    assert events[-1]["reason_code"] == "MODEL_REPEATS"
    assert [event["turn"] for event in of_type(events, "model.steered")] == [1, 2]
    assert len(gateway.travel.arrivals) == 3
    assert "already made exactly these calls" in gemini.requests[-1]["contents"][-1]["parts"][-1]["text"]


@pytest.mark.parametrize(
    ("bounds", "end", "asked"),
    [
        ({"rounds": 2}, "RUN_ROUNDS_EXHAUSTED", 3),
        ({"model_calls": 2}, "RUN_MODEL_CALLS_EXHAUSTED", 2),
        ({"tokens": 150}, "RUN_TOKENS_EXHAUSTED", 2),
        ({"duration_s": 0.01}, "RUN_TIME_EXHAUSTED", 0),
    ],
)
async def test_bounds_end_a_run(
    open_with: OpenGateway,
    travel_bundle: Path,
    gemini: GeminiServer,
    with_model: dict[str, Any],
    bounds: dict[str, Any],
    end: str,
    asked: int,
):
    gateway = await open_with(travel_bundle, **with_model, runs=bounds)
    gemini.script = [calls(("search_hotels", {"city": f"City {n}"})) for n in range(9)]
    events = await run_to_end(gateway)
    assert (events[-1]["type"], events[-1]["reason_code"]) == ("run.failed", end)
    assert sum(gemini.asked.values()) <= max(asked, 1)
    assert (await gateway.get(f"/v1/runs/{events[0]['run_id']}"))[1]["state"] == "failed"


async def test_budgets_hold_for_the_calls_of_a_run(
    open_with: OpenGateway, copied_bundle: Path, gemini: GeminiServer, with_model: dict[str, Any]
):
    (copied_bundle / "budgets.yaml").write_text("- {name: run_calls, per: [run], unit: calls, limit: 2}\n")
    gateway = await open_with(copied_bundle, **with_model)
    gemini.script = [calls(*[("search_hotels", {"city": f"City {n}"}) for n in range(3)]), text("Done.")]
    events = await run_to_end(gateway)
    codes = [event["reason_code"] for event in of_type(events, "call.finished")]
    assert sorted(codes) == ["BUDGET_CALLS_EXHAUSTED", "EXECUTION_NO_MATCH", "EXECUTION_NO_MATCH"]


async def test_a_cancelled_run_ends_at_once_and_lets_no_call_in(gateway: Gateway, gemini: GeminiServer):
    gemini.script = [calls(("search_hotels", PARIS)), text("Done.")]
    gemini.hold[0] = asyncio.Event()
    async with stream(gateway, "POST", "/v1/runs", run_body()) as opened:
        run_id = (await opened.read("run.started"))[0]["run_id"]
        for _ in range(2):
            status, run = await gateway.post(f"/v1/runs/{run_id}/cancel", {})
            assert (status, run["state"], run["is_cancelled"]) == (200, "cancelled", True)
        events = await opened.read()
    gemini.hold[0].set()
    assert (types(events), events[-1]["reason_code"]) == (["run.started", "run.failed"], "RUN_CANCELLED")
    answer = await gateway.call("search_hotels", PARIS, run_id=run_id)
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == ("blocked", "RUN_CANCELLED")
    assert gateway.travel.arrivals == []
    _, page = await gateway.get("/v1/decisions", key="dev-auditor-key", q=f"run:{run_id} kind:cancellation")
    assert [(item["agent"], item["reason_code"]) for item in page["items"]] == [("travel-assistant", "RUN_CANCELLED")]


async def test_cancels_a_run_that_its_agent_drives(gateway: Gateway):
    assert (await gateway.call("search_hotels", PARIS, run_id="mine"))["result"]["status"] == "ok"
    assert (await gateway.get("/v1/runs/mine"))[1]["state"] == "open"
    assert (await gateway.get("/v1/runs/yours"))[0] == 404
    for run_id in ("mine", "yours"):
        status, run = await gateway.post(f"/v1/runs/{run_id}/cancel", {})
        assert (status, run["state"]) == (200, "cancelled")
        refused = await gateway.call("search_hotels", PARIS, run_id=run_id)
        assert refused["result"]["reason_code"] == "RUN_CANCELLED"
    assert (await gateway.call("search_hotels", PARIS, run_id="other"))["result"]["status"] == "ok"


async def test_a_cancelled_run_admits_no_call_whose_tool_wants_no_facts(open_with: OpenGateway, copied_bundle: Path, edit: Any):
    edit("tools/search_hotels.yaml", facts="none")
    gateway = await open_with(copied_bundle)
    await gateway.post("/v1/runs/r1/cancel", {})
    refused = await gateway.call("search_hotels", PARIS, run_id="r1")
    assert (refused["decision"]["stage"], refused["result"]["reason_code"]) == ("admit", "RUN_CANCELLED")
    assert gateway.travel.arrivals == []


async def test_refuses_a_run_before_it_begins(open_with: OpenGateway, travel_bundle: Path, with_model: dict[str, Any]):
    gateway = await open_with(travel_bundle, **with_model, runs={"models": ["gemini-flash-latest"]})
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"workflow": "trip_alerts"}, 403, "WORKFLOW_NOT_ALLOWED"),
        ({"on_behalf_of": "eve"}, 403, "DELEGATION_INVALID"),
        ({"workflow": "trip_booking", "context": {}}, 400, "CONTEXT_INVALID"),
        ({"model": "../../evil"}, 400, "ENVELOPE_INVALID"),
        ({"model": "gemini-other"}, 403, "MODEL_NOT_ALLOWED"),
        ({"prompt": ""}, 400, "ENVELOPE_INVALID"),
        ({"prompt": "a\0b"}, 400, "ENVELOPE_INVALID"),
        ({"run_id": "mine"}, 400, "ENVELOPE_INVALID"),
    ]
    for change, status, code in cases:
        answered, problem = await gateway.post("/v1/runs", run_body() | change)
        assert (answered, problem["code"]) == (status, code), change
    assert (await gateway.get("/v1/runs"))[1]["items"] == []


async def test_says_where_no_model_is_configured(open_with: OpenGateway, travel_bundle: Path):
    gateway = await open_with(travel_bundle)
    status, problem = await gateway.post("/v1/runs", run_body())
    assert (status, problem["code"]) == (503, "MODEL_NOT_CONFIGURED")
