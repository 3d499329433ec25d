"""What a governed call must show: allowed, refused, failing and repeated calls, each with its record."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.conftest import AUDITOR, Gateway, new_key

PARIS = {"city": "Paris, France", "maxNightlyPriceUsd": 250}
BOOKING = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}


async def test_answers_an_allowed_search_with_data_and_the_whole_decision(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS, id="fc-1")
    data = answer["result"].pop("data")
    assert answer == {
        "decision_id": answer["decision_id"],
        "call": {"id": "fc-1", "name": "search_hotels"},
        "decision": {
            "effect": "allow",
            "reason_code": "USER_REQUEST_MATCHED_TOOL_SCOPE",
            "stage": "decide",
            "policy": "travel.search",
            "revision": gateway.revision,
        },
        "result": {
            "status": "ok",
            "reason_code": "EXECUTION_SUCCEEDED",
            "message": "Done. Do not repeat this call.",
            "retry_same_input": False,
        },
        "replayed": False,
    }
    assert {"hotelId": "h1", "name": "Hotel Lumière", "nightlyUsd": 180} in data["matches"]
    assert all(match["nightlyUsd"] <= 250 for match in data["matches"])


async def test_shows_the_auditor_who_what_why_and_what_came_of_it(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS, run_id="run-42", id="fc-1")
    found = await gateway.decision(answer["decision_id"])
    record: dict[str, Any] = found["record"]
    assert {name: record[name] for name in ("kind", "agent", "subject", "run_id", "call_id", "workflow", "tool", "risk")} == {
        "kind": "decision",
        "agent": "travel-assistant",
        "subject": "ada",
        "run_id": "run-42",
        "call_id": "fc-1",
        "workflow": "trip_planning",
        "tool": "search_hotels",
        "risk": "read",
    }
    assert (record["effect"], record["reason_code"], record["policy"], record["revision"]) == (
        "allow",
        "USER_REQUEST_MATCHED_TOOL_SCOPE",
        "travel.search",
        gateway.revision,
    )
    assert record["argument_keys"] == ["city", "maxNightlyPriceUsd"]
    assert [stage["name"] for stage in record["stages"]] == ["recall", "resolve", "validate", "authorize", "facts", "decide"]
    assert all(stage["ms"] >= 0 and stage["outcome"] == "passed" for stage in record["stages"])
    assert record["engine"].startswith("embedded regorus")
    assert [budget["name"] for budget in record["budgets"]] == ["run_calls"]
    (outcome,) = found["linked"]
    assert (outcome["kind"], outcome["status"], outcome["outcome"]["state"], outcome["outcome"]["tool_status"]) == (
        "outcome",
        "ok",
        "succeeded",
        200,
    )
    assert outcome["links"] == [{"rel": "decision", "decision_id": answer["decision_id"]}]
    payloads = await gateway.payloads(answer["decision_id"])
    assert payloads["arguments"]["args"] == PARIS
    assert payloads["arguments"]["policy_input"]["subject"]["name"] == "ada"


async def test_redacts_what_the_tool_declares_secret(gateway: Gateway):
    answer = await gateway.call("book_hotel", BOOKING | {"cardToken": "tok-FAKE-1"}, workflow="trip_booking")
    found = await gateway.decision(answer["decision_id"])
    payloads = await gateway.payloads(answer["decision_id"])
    assert payloads["arguments"]["args"]["cardToken"] == "[redacted]"
    assert payloads["arguments"]["policy_input"]["args"]["cardToken"] == "[redacted]"
    assert "tok-FAKE-1" not in f"{found}{payloads}"


async def test_keeps_auditors_routes_from_agents_and_agents_routes_from_auditors(gateway: Gateway):
    answer = await gateway.call("search_hotels", PARIS)
    status, problem = await gateway.get(f"/v1/decisions/{answer['decision_id']}")
    assert (status, problem["code"]) == (403, "ROLE_REQUIRED")
    status, problem = await gateway.post("/v1/calls", {}, key=AUDITOR)
    assert (status, problem["code"]) == (403, "ROLE_REQUIRED")
    status, problem = await gateway.get("/v1/decisions", key="no-such-key")
    assert (status, problem["code"]) == (401, "NOT_AUTHENTICATED")


NOT_GRANTED: list[tuple[tuple[str, Any], dict[str, Any], str, str]] = [
    (("book_hotel", BOOKING), {}, "resolve", "TOOL_NOT_IN_WORKFLOW"),
    (("book_hotel", BOOKING), {"workflow": "trip_booking", "subject": "bob"}, "authorize", "PERMISSION_MISSING"),
    (("delete_everything", {}), {}, "resolve", "TOOL_UNKNOWN"),
    (("send_notification", {"to": "ada", "text": "hi"}), {"workflow": "trip_alerts"}, "resolve", "WORKFLOW_NOT_ALLOWED"),
    (("search_hotels", PARIS), {"workflow": "no_such"}, "resolve", "WORKFLOW_UNKNOWN"),
    (("search_hotels", PARIS), {"subject": None}, "resolve", "SUBJECT_REQUIRED"),
    (("search_hotels", PARIS), {"subject": "mallory"}, "resolve", "DELEGATION_INVALID"),
]


@pytest.mark.parametrize(("call", "setting", "stage", "code"), NOT_GRANTED)
async def test_blocks_what_was_not_granted(gateway: Gateway, call: tuple[str, Any], setting: dict[str, Any], stage: str, code: str):
    answer = await gateway.call(*call, **setting)
    assert (answer["result"]["status"], answer["result"]["reason_code"], answer["result"]["retry_same_input"]) == ("blocked", code, False)
    assert (answer["decision"]["effect"], answer["decision"]["stage"]) == ("deny", stage)
    record = (await gateway.decision(answer["decision_id"]))["record"]
    assert (record["effect"], record["reason_code"], record["stage"], record["status"]) == ("deny", code, stage, "blocked")
    assert gateway.travel.arrivals == []


async def test_asks_for_a_person_before_a_booking_and_the_service_sees_nothing(gateway: Gateway):
    answer = await gateway.call("book_hotel", BOOKING, workflow="trip_booking")
    result = answer["result"]
    assert (result["status"], result["reason_code"], result["retry_same_input"]) == ("confirmation_required", "CONFIRMATION_REQUIRED", True)
    assert result["summary"] == "Book a hotel for ada"
    assert answer["decision"]["policy"] == "travel.booking"
    record = (await gateway.decision(answer["decision_id"]))["record"]
    assert record["approval_id"] == result["approval_id"]
    assert gateway.travel.arrivals == []


async def test_opens_one_approval_for_one_effect(gateway: Gateway):
    first = await gateway.call("book_hotel", BOOKING, workflow="trip_booking")
    again = await gateway.call("book_hotel", BOOKING, workflow="trip_booking", id="another-id")
    other = await gateway.call("book_hotel", BOOKING | {"totalUsd": 201}, workflow="trip_booking")
    assert again["result"]["approval_id"] == first["result"]["approval_id"] != other["result"]["approval_id"]
    waiting = await gateway.call("book_hotel", BOOKING, workflow="trip_booking", approval_id=first["result"]["approval_id"])
    assert (waiting["result"]["reason_code"], waiting["result"]["approval_id"]) == ("APPROVAL_PENDING", first["result"]["approval_id"])
    strange = await gateway.call(
        "book_hotel", BOOKING | {"totalUsd": 202}, workflow="trip_booking", approval_id=first["result"]["approval_id"]
    )
    assert strange["result"]["reason_code"] == "APPROVAL_OUT_OF_SCOPE"
    unknown = await gateway.call("book_hotel", BOOKING, workflow="trip_booking", approval_id="not-an-approval")
    assert unknown["result"]["reason_code"] == "APPROVAL_UNKNOWN"


async def test_says_no_match_for_a_city_without_hotels(gateway: Gateway):
    answer = await gateway.call("search_hotels", {"city": "Atlantis"})
    assert answer["result"] == {
        "status": "no_match",
        "reason_code": "EXECUTION_NO_MATCH",
        "message": "It ran and found nothing. The same input finds nothing again.",
        "retry_same_input": False,
    }


async def test_says_temporary_when_the_service_is_down_and_books_that_nothing_happened(gateway: Gateway):
    await gateway.travel.runner.cleanup()
    answer = await gateway.call("search_hotels", PARIS)
    result = answer["result"]
    assert (result["status"], result["reason_code"], result["retry_same_input"]) == ("temporary_error", "NO_EFFECT_PROVEN", True)
    assert result["retry_after_ms"] > 0
    (outcome,) = (await gateway.decision(answer["decision_id"]))["linked"]
    assert (outcome["outcome"]["state"], outcome["outcome"]["phase"]) == ("open", "not_sent")
    assert [(budget["name"], budget["settled"], budget["reserved"]) for budget in outcome["budgets"]] == [("run_calls", 0, 0)]


async def test_says_temporary_for_a_read_that_is_slower_than_its_timeout(
    open_with: Callable[..., Any], copied_bundle: Any, edit: Callable[..., None]
):
    edit("tools/search_hotels.yaml", timeout="300ms")
    gateway: Gateway = await open_with(copied_bundle)
    await gateway.fault("GET", "/hotels", "slow")
    answer = await gateway.call("search_hotels", PARIS)
    assert (answer["result"]["status"], answer["result"]["reason_code"]) == ("temporary_error", "EXECUTION_TIMEOUT")


async def test_treats_a_write_whose_answer_was_lost_as_unknown(gateway: Gateway):
    await gateway.fault("POST", "/notifications", "reset_after_apply")
    answer = await gateway.call(
        "send_notification",
        {"to": "cy", "text": "Gate B7"},
        key="dev-alerts-key",
        workflow="trip_alerts",
        subject="cy",
        idempotency_key=new_key(),
    )
    assert (answer["result"]["status"], answer["result"]["retry_same_input"]) == ("outcome_unknown", False)
    assert gateway.travel.arrivals == ["POST /notifications"]


async def test_requires_a_key_where_only_the_caller_can_tell_calls_apart(gateway: Gateway):
    answer = await gateway.call(
        "send_notification", {"to": "cy", "text": "Gate B7"}, key="dev-alerts-key", workflow="trip_alerts", subject="cy"
    )
    assert answer["result"]["reason_code"] == "IDEMPOTENCY_KEY_REQUIRED"


async def test_hands_the_service_its_own_headers_and_nothing_of_the_callers(gateway: Gateway):
    await gateway.call("search_hotels", PARIS, headers={"Cookie": "a=FAKE-A", "X-Agent-Id": "root"})
    (sent,) = gateway.travel.headers
    assert "Cookie" not in sent
    assert "X-Agent-Id" not in sent
    assert sent["Authorization"] == "Bearer dev-token"


async def test_shows_an_agent_its_call_as_it_stands(gateway: Gateway):
    for answer in (
        await gateway.call("search_hotels", PARIS, id="fc-1"),
        await gateway.call("delete_everything", {}, id="fc-2"),
        await gateway.call("search_hotels", {"town": "x"}),
        await gateway.call("book_hotel", BOOKING, workflow="trip_booking"),
    ):
        status, now = await gateway.get(f"/v1/calls/{answer['decision_id']}", wait="1")
        assert (status, now) == (200, answer)
    status, problem = await gateway.get(f"/v1/calls/{answer['decision_id']}", key="dev-alerts-key")
    assert (status, problem["code"]) == (404, "NOT_FOUND")
