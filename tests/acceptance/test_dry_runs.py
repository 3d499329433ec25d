"""Dry runs and tool lists: the same stages, nothing done, nothing written."""

from typing import Any

from tests.acceptance.conftest import ALERTS, AUDITOR, AUTHOR, Gateway

PARIS = {"city": "Paris, France"}

PLANNING = ["search_hotels", "get_itinerary", "open_screen", "copy_to_clipboard"]


def _ask(name: str, args: Any, workflow: str = "trip_planning", subject: str = "ada", **more: Any) -> dict[str, Any]:
    context = {"requestVersion": "1"} if workflow == "trip_booking" else {}
    return {"workflow": workflow, "run_id": "r1", "on_behalf_of": subject, "context": context, "call": {"name": name, "args": args}} | more


async def test_tells_an_agent_the_code_only_and_writes_nothing(gateway: Gateway):
    status, found = await gateway.post("/v1/evaluations", _ask("search_hotels", PARIS))
    assert (status, found) == (
        200,
        {"effect": "allow", "reason_code": "USER_REQUEST_MATCHED_TOOL_SCOPE", "status": None, "revision": gateway.revision},
    )
    booking = {"hotelId": "h1", "itineraryId": "it-1", "totalUsd": 200}
    status, found = await gateway.post("/v1/evaluations", _ask("book_hotel", booking, "trip_booking"))
    assert (found["effect"], found["status"]) == ("confirm", "confirmation_required")
    _, page = await gateway.get("/v1/decisions", key=AUDITOR)
    assert [item["kind"] for item in page["items"]] == ["activation"]
    assert gateway.travel.arrivals == []


async def test_shows_an_author_the_stages_for_any_agent(gateway: Gateway):
    body = _ask("send_notification", {"to": "cy", "text": "x"}, "trip_alerts", "cy", agent="trip-alerts")
    status, found = await gateway.post("/v1/evaluations", body, key=AUTHOR)
    assert (status, found["effect"], found["stage"]) == (200, "allow", "decide")
    assert [stage["name"] for stage in found["stages"]] == ["recall", "resolve", "validate", "authorize", "facts", "decide", "admit"]
    status, found = await gateway.post("/v1/evaluations", body | {"agent": "travel-assistant"}, key=AUTHOR)
    assert (found["stage"], found["reason_code"]) == ("resolve", "WORKFLOW_NOT_ALLOWED")


async def test_lets_only_authors_ask_about_other_agents(gateway: Gateway):
    status, problem = await gateway.post("/v1/evaluations", _ask("search_hotels", PARIS, agent="trip-alerts"))
    assert (status, problem["code"]) == (403, "ROLE_REQUIRED")


async def test_lists_the_tools_that_the_principal_may_call(gateway: Gateway):
    async def names(key: str = "dev-agent-key", **params: str) -> list[str]:
        status, found = await gateway.get("/v1/tools", key=key, **params)
        assert status == 200, found
        return [tool["name"] for tool in found["tools"]]

    assert await names(workflow="trip_planning", on_behalf_of="ada") == PLANNING
    assert await names(workflow="trip_planning", on_behalf_of="bob") == ["search_hotels"]
    assert await names(workflow="trip_booking", on_behalf_of="bob") == ["search_hotels"]
    assert await names(ALERTS, workflow="trip_alerts", on_behalf_of="cy") == ["get_itinerary", "send_notification"]
    status, problem = await gateway.get("/v1/tools", workflow="trip_alerts", on_behalf_of="ada")
    assert (status, problem["code"]) == (403, "WORKFLOW_NOT_ALLOWED")


async def test_lists_tools_in_geminis_shape(gateway: Gateway):
    status, found = await gateway.get("/v1/tools", workflow="trip_planning", on_behalf_of="ada", format="gemini")
    assert status == 200
    (declared,) = found["tools"]
    (declarations,) = declared.values()
    assert [declaration["name"] for declaration in declarations] == PLANNING
