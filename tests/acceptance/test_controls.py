"""Controls: an agent, a tool or everything is stopped at once, on every gateway, and each change is a record."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import AUDITOR, Gateway, OpenGateway

OPERATOR = "dev-operator-key"
PARIS = {"city": "Paris, France"}


async def _control(gateway: Gateway, action: str, name: str = "", reason: str = "an incident") -> tuple[int, Any]:
    return await gateway.post("/v1/controls", {"action": action, "name": name, "reason": reason}, key=OPERATOR)


@pytest.mark.parametrize(
    ("stop", "start", "name", "code"),
    [
        ("suspend", "resume", "travel-assistant", "AGENT_SUSPENDED"),
        ("disable", "enable", "search_hotels", "TOOL_DISABLED"),
        ("freeze", "unfreeze", "", "TENANT_FROZEN"),
    ],
)
async def test_stops_at_once_on_every_gateway(open_with: OpenGateway, travel_bundle: Path, stop: str, start: str, name: str, code: str):
    one, other = await open_with(travel_bundle), await open_with(travel_bundle)
    assert await _control(one, stop, name) == (200, {"changed": True})
    assert await _control(other, stop, name) == (200, {"changed": False})
    for gateway in (other, one):  # first the one that was told nothing
        answer = await gateway.call("search_hotels", PARIS)
        assert (answer["decision"]["reason_code"], answer["result"]["status"]) == (code, "blocked")
    assert one.travel.arrivals == []
    status, listed = await other.get("/v1/controls", key=OPERATOR)
    assert (status, [(item["name"], item["reason"], item["restricted_by"]) for item in listed["items"]]) == (
        200,
        [(name, "an incident", "dev-operator")],
    )
    assert await _control(other, start, name) == (200, {"changed": True})
    for gateway in (one, other):
        await _until_served(gateway)
    _, found = await one.get("/v1/decisions", key=AUDITOR, q="kind:control")
    assert [item["outcome"]["is_restricted"] for item in found["items"]] == [False, True]


async def _until_served(gateway: Gateway) -> None:
    """A refusal is at once; that it is over, a gateway learns when it looks next."""
    async with asyncio.timeout(10):
        while (await gateway.call("search_hotels", PARIS))["result"]["status"] != "ok":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


async def test_what_is_stopped_is_not_shown_either(gateway: Gateway):
    assert (await gateway.call("search_hotels", PARIS, run_id="r", idempotency_key="a-key-of-this-suite"))["result"]["data"]
    await _control(gateway, "disable", "search_hotels")
    _, tools = await gateway.get("/v1/tools", workflow="trip_planning", on_behalf_of="ada")
    assert "search_hotels" not in [tool["name"] for tool in tools["tools"]]
    repeated = await gateway.call("search_hotels", PARIS, run_id="r", idempotency_key="a-key-of-this-suite")
    assert (repeated["replayed"], repeated["result"]["data"], repeated["result"]["data_omitted"]) == (True, None, "not_permitted")
    await _control(gateway, "suspend", "travel-assistant")
    status, problem = await gateway.get("/v1/tools", workflow="trip_planning", on_behalf_of="ada")
    assert (status, problem["code"]) == (403, "AGENT_SUSPENDED")


async def test_a_misspelt_name_stops_nothing_and_says_so(gateway: Gateway):
    for action, name in (("suspend", "travel-asistant"), ("disable", "search_hotel")):
        status, problem = await _control(gateway, action, name)
        assert (status, problem["code"]) == (404, "NOT_FOUND")
    for action, name in (("suspend", ""), ("freeze", "everything")):
        status, problem = await _control(gateway, action, name)
        assert (status, problem["errors"][0]["pointer"]) == (400, "/name")
    assert (await _control(gateway, "freeze", reason="x"))[0] == 400
    assert (await gateway.post("/v1/controls", {"action": "freeze", "reason": "not mine"}, key=AUDITOR))[0] == 403
    assert (await gateway.get("/v1/controls", key=OPERATOR))[1]["items"] == []
