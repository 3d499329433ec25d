"""What operators see and do, on the real ledger: doubts and their end, budgets."""

from typing import Any
from uuid import uuid4

from tests.acceptance.conftest import ALERTS, AUDITOR, Gateway, new_key

OPERATOR = "dev-operator-key"
EVIDENCE = "the provider's outbox shows it at 10:02"


async def notify(gateway: Gateway, *, idempotency_key: str, text: str = "Your flight is late") -> Any:
    """A notification to cy, who is never asleep."""
    args = {"to": "cy", "text": text}
    return await gateway.call(
        "send_notification", args, key=ALERTS, workflow="trip_alerts", subject="cy", run_id="alerts", idempotency_key=idempotency_key
    )


async def notify_in_doubt(gateway: Gateway, idempotency_key: str) -> str:
    """The decision on a notification whose answer was lost."""
    await gateway.fault("POST", "/notifications", "reset_after_apply")
    answer = await notify(gateway, idempotency_key=idempotency_key)
    assert answer["result"]["status"] == "outcome_unknown", answer
    return answer["decision_id"]


async def in_doubt(gateway: Gateway) -> list[Any]:
    status, page = await gateway.get("/v1/calls", key=OPERATOR)
    assert status == 200, page
    return page["items"]


async def resolve(gateway: Gateway, decision_id: str, outcome: str) -> tuple[int, Any]:
    return await gateway.post(f"/v1/calls/{decision_id}/resolve", {"outcome": outcome, "evidence": EVIDENCE}, key=OPERATOR)


async def calls_budget(gateway: Gateway) -> list[tuple[str, str]]:
    """(reserved, spent) of every budget on calls of the run."""
    status, page = await gateway.get("/v1/budgets", key=OPERATOR)
    assert status == 200, page
    return [(item["reserved"], item["spent"]) for item in page["items"] if item["unit"] == "calls" and "alerts" in str(item["scope"])]


async def test_a_person_says_that_a_doubted_call_happened(gateway: Gateway):
    key = new_key()
    decision_id = await notify_in_doubt(gateway, key)
    (item,) = await in_doubt(gateway)
    assert (item["decision_id"], item["tool"], item["replay"], item["agent"], item["subject"], item["run_id"], item["attempts"]) == (
        decision_id, "send_notification", "never", "trip-alerts", "cy", "alerts", 1,
    )  # fmt: skip
    assert await calls_budget(gateway) == [("1", "0")]

    assert await resolve(gateway, decision_id, "happened") == (200, {"decision_id": decision_id, "state": "succeeded"})

    assert await in_doubt(gateway) == []
    assert await calls_budget(gateway) == [("0", "1")]
    again = await notify(gateway, idempotency_key=key)
    assert (again["result"]["status"], again["replayed"], again["decision_id"]) == ("ok", True, decision_id)
    assert gateway.travel.arrivals == ["POST /notifications"]
    found = await gateway.decision(decision_id)
    (resolution,) = [record for record in found["linked"] if record["kind"] == "resolution"]
    assert EVIDENCE in str(resolution), resolution
    assert EVIDENCE not in str(again)


async def test_a_person_says_that_a_doubted_call_did_not_happen_and_it_may_be_made(gateway: Gateway):
    key = new_key()
    decision_id = await notify_in_doubt(gateway, key)
    assert await resolve(gateway, decision_id, "did_not_happen") == (200, {"decision_id": decision_id, "state": "open"})
    assert await in_doubt(gateway) == []
    assert await calls_budget(gateway) == [("0", "0")]
    again = await notify(gateway, idempotency_key=key)
    assert (again["result"]["status"], again["replayed"]) == ("ok", False)
    assert gateway.travel.arrivals == ["POST /notifications"] * 2


async def test_a_doubt_is_ended_once(gateway: Gateway):
    decision_id = await notify_in_doubt(gateway, new_key())
    assert (await resolve(gateway, decision_id, "happened"))[0] == 200
    for outcome in ("happened", "did_not_happen"):
        status, problem = await resolve(gateway, decision_id, outcome)
        assert (status, problem["code"], "succeeded" in problem["detail"]) == (409, "NOT_IN_DOUBT", True)
    found = await gateway.decision(decision_id)
    assert [record["kind"] for record in found["linked"]].count("resolution") == 1


async def test_calls_that_never_were_in_doubt_cannot_be_resolved(gateway: Gateway):
    answer = await notify(gateway, idempotency_key=new_key())
    status, problem = await resolve(gateway, answer["decision_id"], "happened")
    assert (status, problem["code"]) == (409, "NOT_IN_DOUBT")
    refused = await gateway.call("no_such_tool")
    for decision_id in (refused["decision_id"], str(uuid4())):
        status, problem = await resolve(gateway, decision_id, "happened")
        assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_pages_of_calls_and_budgets_come_in_one_order(gateway: Gateway):
    made = [(await gateway.call("search_hotels", {"city": "Rome, Italy"}, run_id=f"run-{n}"))["decision_id"] for n in range(3)]
    for path, params in (("/v1/calls", {"state": "succeeded"}), ("/v1/budgets", {})):
        _, whole = await gateway.get(path, key=OPERATOR, **params)
        pages: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            _, page = await gateway.get(path, key=OPERATOR, limit="1", **params, **cursor)
            pages += page["items"]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert pages == whole["items"]
        if path == "/v1/calls":
            assert [item["decision_id"] for item in pages] == made


async def test_roles_stay_apart_on_one_path(gateway: Gateway):
    answer = await gateway.call("search_hotels", {"city": "Rome, Italy"})
    for key in ("dev-agent-key", AUDITOR):
        assert (await gateway.get("/v1/calls", key=key))[0] == 403
    assert (await gateway.get(f"/v1/calls/{answer['decision_id']}", key=OPERATOR))[0] == 403
