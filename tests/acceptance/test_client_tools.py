"""Calls that the agent's client performs: decided and recorded here, handed out, reported once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.conftest import ALERTS, Gateway, OpenGateway, new_key

SCREEN = {"screen": "itinerary"}
OPERATOR = "dev-operator-key"


@pytest.fixture
def form_bundle(copied_bundle: Path, add_tool: Callable[..., None]) -> Callable[..., Path]:
    """The travel bundle with `sign_form`, a write that the traveller does in the app."""

    def make(**fields: Any) -> Path:
        declared: dict[str, Any] = {
            "risk": "write", "permissions": ["hotel:book"], "replay": "never", "timeout": "1s", "execute": {"client": {"kind": "form"}},
            "idempotency": {"key": ["subject", "args.n"], "window": "30m"},
        }  # fmt: skip
        add_tool("sign_form", "", **declared | fields)
        return copied_bundle

    return make


async def open_screen(gateway: Gateway, *, run_id: str = "r1", **more: Any) -> Any:
    return await gateway.call("open_screen", SCREEN, run_id=run_id, **more)


async def sign(gateway: Gateway, n: int = 1, *, run_id: str = "r1", **more: Any) -> Any:
    return await gateway.call("sign_form", {"n": n}, workflow="trip_booking", run_id=run_id, **more)


async def report(gateway: Gateway, execution_id: str, status: str = "ok", *, key: str = "dev-agent-key", **data: Any) -> tuple[int, Any]:
    return await gateway.post(f"/v1/executions/{execution_id}/result", {"status": status} | data, key=key)


async def look(gateway: Gateway, decision_id: str, **params: str) -> Any:
    status, now = await gateway.get(f"/v1/calls/{decision_id}", **params)
    assert status == 200, now
    return now


async def until(gateway: Gateway, decision_id: str, status: str) -> Any:
    async with asyncio.timeout(20):
        while (now := await look(gateway, decision_id))["result"]["status"] != status:  # noqa: ASYNC110 - the gateway's state
            await asyncio.sleep(0.1)
    return now


async def test_the_client_is_handed_the_call_and_says_once_what_came_of_it(gateway: Gateway):
    key = new_key()
    handed = await open_screen(gateway, id="fc-1", idempotency_key=key)
    result = handed["result"]
    assert {name: result[name] for name in ("status", "reason_code", "retry_same_input", "kind", "args")} == {
        "status": "pending_client", "reason_code": "USER_REQUEST_MATCHED_TOOL_SCOPE", "retry_same_input": False, "kind": "screen", "args": SCREEN,
    }  # fmt: skip
    again = await open_screen(gateway, id="fc-2", idempotency_key=key)
    assert (again["replayed"], again["result"], again["call"]["id"]) == (True, result, "fc-2")
    assert (await look(gateway, handed["decision_id"]))["result"] == result
    waiting = asyncio.create_task(look(gateway, handed["decision_id"], wait="20"))

    execution_id = result["execution_id"]
    assert (await report(gateway, execution_id, key=ALERTS))[0] == 404  # another agent's
    assert (await report(gateway, execution_id, "done"))[0] == 400
    status, answer = await report(gateway, execution_id, data={"shown": True})
    assert (status, answer["decision_id"], answer["call"]) == (200, handed["decision_id"], {"id": "fc-1", "name": "open_screen"})
    assert (answer["result"]["status"], answer["result"]["data"], answer["decision"]) == ("ok", {"shown": True}, handed["decision"])
    assert (await waiting)["result"] == answer["result"]
    for status in ("ok", "failed"):
        found, problem = await report(gateway, execution_id, status)
        assert (found, problem["code"]) == (409, "ALREADY_POSTED")
    assert (await open_screen(gateway, idempotency_key=key))["result"] == answer["result"]

    found = await gateway.decision(handed["decision_id"])
    assert [(record["kind"], record["reason_code"]) for record in found["linked"][:1]] == [("outcome", "EXECUTION_SUCCEEDED")]
    assert found["linked"][0]["outcome"]["method"] == "client"
    assert gateway.travel.arrivals == []


async def test_a_client_may_find_nothing_or_fail(gateway: Gateway):
    for said, status, code in (("no_match", "no_match", "EXECUTION_NO_MATCH"), ("failed", "failed", "EXECUTION_FAILED")):
        handed = await gateway.call("copy_to_clipboard", {"text": said}, run_id="r1")
        found, answer = await report(gateway, handed["result"]["execution_id"], said)
        assert (found, answer["result"]["status"], answer["result"]["reason_code"]) == (200, status, code)


async def test_what_the_gateway_runs_itself_has_no_result_to_post(gateway: Gateway):
    """Where a tool runs is a fact of its declaration, never of the path that a call took."""
    done = await gateway.call("search_hotels", {"city": "Paris, France"}, run_id="r1")
    refused = await gateway.call("open_screen", SCREEN, subject="bob", run_id="r2")
    assert (done["result"]["status"], refused["result"]["reason_code"]) == ("ok", "PERMISSION_MISSING")
    for execution_id in (done["decision_id"], refused["decision_id"], "no-such-id", "0199a5f0-0000-7000-8000-000000000000"):
        status, problem = await report(gateway, execution_id)
        assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_a_silent_client_fails_a_read_and_a_late_word_no_longer_counts(
    open_with: OpenGateway, copied_bundle: Path, edit: Callable[..., None]
):
    edit("tools/open_screen.yaml", timeout="1s")
    gateway = await open_with(copied_bundle)
    handed = await open_screen(gateway)
    silent = await until(gateway, handed["decision_id"], "failed")
    assert silent["result"]["reason_code"] == "CLIENT_SILENT"
    status, problem = await report(gateway, handed["result"]["execution_id"])
    assert (status, problem["code"]) == (409, "EXECUTION_EXPIRED")
    assert (await look(gateway, handed["decision_id"]))["result"] == silent["result"]


async def test_a_silent_client_leaves_a_write_in_doubt_until_a_late_word_ends_it_once(
    open_with: OpenGateway, form_bundle: Callable[..., Path]
):
    gateway = await open_with(form_bundle())
    handed = await sign(gateway)
    assert (handed["result"]["status"], handed["result"]["kind"]) == ("pending_client", "form")
    assert (await sign(gateway, idempotency_key=new_key()))["replayed"]
    doubt = await until(gateway, handed["decision_id"], "outcome_unknown")
    assert doubt["result"]["reason_code"] == "OUTCOME_UNKNOWN"
    assert (await sign(gateway, run_id="r2"))["result"]["status"] == "outcome_unknown"
    _, page = await gateway.get("/v1/calls", key=OPERATOR, state="in_doubt")
    assert [call["decision_id"] for call in page["items"]] == [handed["decision_id"]]
    status, answer = await report(gateway, handed["result"]["execution_id"], data={"signed": True})
    assert (status, answer["result"]["status"], answer["result"]["data"]) == (200, "ok", {"signed": True})
    assert (await report(gateway, handed["result"]["execution_id"]))[1]["code"] == "ALREADY_POSTED"
    kinds = [record["kind"] for record in (await gateway.decision(handed["decision_id"]))["linked"] if record["kind"] != "replay"]
    assert kinds == ["outcome", "resolution"]
    assert (await sign(gateway, run_id="r3"))["result"] == answer["result"]


async def test_of_many_reports_at_once_one_counts(open_with: OpenGateway, form_bundle: Callable[..., Path]):
    bundle = form_bundle(timeout="60s", result={"output": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}})
    one, two = await open_with(bundle), await open_with(bundle)
    handed = await sign(one)
    execution_id = handed["result"]["execution_id"]
    reports = await asyncio.gather(*(report(gateway, execution_id, data={"n": n}) for n, gateway in enumerate([one, two] * 10)))
    assert sorted(status for status, _ in reports) == [200] + [409] * 19
    (said,) = (answer["result"]["data"] for status, answer in reports if status == 200)
    assert (await look(two, handed["decision_id"]))["result"]["data"] == said
    # What does not fit the tool's schema still happened.
    other = await sign(one, 2)
    _, answer = await report(one, other["result"]["execution_id"], data={"n": "many"})
    assert (answer["result"]["status"], answer["result"]["data"], answer["result"]["data_omitted"]) == ("ok", None, "invalid")


async def test_a_person_may_have_to_agree_before_the_client_acts(open_with: OpenGateway, form_bundle: Callable[..., Path]):
    bundle = form_bundle(timeout="60s")
    policy = bundle / "rego" / "suite" / "sign_form.rego"
    policy.write_text(policy.read_text().replace("allow", "confirm").replace("POLICY_ALLOWED", "CONFIRMATION_REQUIRED"))
    assert yaml.safe_load((bundle / "workflows.yaml").read_text())["trip_booking"]["confirmation"]["rule"] == "other"
    gateway = await open_with(bundle)
    approval_id = (await sign(gateway))["result"]["approval_id"]
    assert (await gateway.post(f"/v1/approvals/{approval_id}/approve", {}, key="dev-approver-key"))[0] == 200
    handed = await sign(gateway, approval_id=approval_id)
    assert (handed["result"]["status"], handed["result"]["reason_code"]) == ("pending_client", "APPROVAL_GRANTED")
    assert (await report(gateway, handed["result"]["execution_id"]))[1]["result"]["status"] == "ok"
