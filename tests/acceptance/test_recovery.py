"""Recovery: leases that are over become doubts, doubts are resolved by class, and nothing happens twice."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.acceptance.conftest import Gateway, OpenGateway, new_key

SEND: dict[str, Any] = {"key": "dev-alerts-key", "workflow": "trip_alerts", "subject": "cy"}
ALERT = {"to": "cy", "text": "Gate B7"}
OPERATOR = "dev-operator-key"


async def _until(gateway: Gateway, decision_id: str, status: str, *, key: str = "dev-agent-key", seconds: float = 20) -> Any:
    """The call as it stands once it has `status`."""
    now: Any = None
    for _ in range(int(seconds * 5)):
        _, now = await gateway.get(f"/v1/calls/{decision_id}", key=key)
        if now["result"]["status"] == status:
            return now
        await asyncio.sleep(0.2)
    raise AssertionError(now)


async def _pretend_the_sender_died(database_url: str, decision_id: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "UPDATE calls SET state = 'running', status = NULL, result = NULL, lease_s = 0, lease_until = clock_timestamp(), finished_at = NULL"
        " WHERE decision_id = $1::uuid",
        decision_id,
    )
    await connection.close()


async def test_abandons_a_read_whose_sender_died_and_books_it(gateway: Gateway, database_url: str):
    answer = await gateway.call("search_hotels", {"city": "Paris, France"}, run_id="r1")
    await _pretend_the_sender_died(database_url, answer["decision_id"])
    now = await _until(gateway, answer["decision_id"], "failed")
    assert now["result"]["reason_code"] == "ABANDONED"
    assert len(gateway.travel.arrivals) == 1


async def test_leaves_an_unrepeatable_write_whose_sender_died_to_a_person(gateway: Gateway, database_url: str):
    key = new_key()
    answer = await gateway.call("send_notification", ALERT, idempotency_key=key, run_id="r1", **SEND)
    await _pretend_the_sender_died(database_url, answer["decision_id"])
    await _until(gateway, answer["decision_id"], "outcome_unknown", key="dev-alerts-key")
    again = await gateway.call("send_notification", ALERT, idempotency_key=key, run_id="r1", **SEND)
    assert (again["result"]["status"], again["replayed"]) == ("outcome_unknown", True)

    status, page = await gateway.get("/v1/calls", key=OPERATOR, state="in_doubt")
    assert (status, [call["decision_id"] for call in page["items"]]) == (200, [answer["decision_id"]])
    evidence = {"outcome": "happened", "evidence": "The provider's log shows the message."}
    status, resolved = await gateway.post(f"/v1/calls/{answer['decision_id']}/resolve", evidence, key=OPERATOR)
    assert (status, resolved["state"]) == (200, "succeeded")
    status, problem = await gateway.post(f"/v1/calls/{answer['decision_id']}/resolve", evidence, key=OPERATOR)
    assert (status, problem["code"]) == (409, "NOT_IN_DOUBT")

    linked = (await gateway.decision(answer["decision_id"]))["linked"]
    assert [record["kind"] for record in linked] == ["outcome", "outcome", "resolution", "replay"]
    assert linked[2]["outcome"]["evidence"] == evidence["evidence"]
    assert gateway.travel.arrivals.count("POST /notifications") == 1


async def test_hears_an_answer_that_comes_after_the_timeout(open_with: OpenGateway, copied_bundle: Path, edit: Any):
    edit("tools/send_notification.yaml", timeout="300ms")
    gateway = await open_with(copied_bundle)
    await gateway.fault("POST", "/notifications", "slow")
    key = new_key()
    first = await gateway.call("send_notification", ALERT, idempotency_key=key, run_id="r1", **SEND)
    assert first["result"]["status"] == "outcome_unknown"
    now = await _until(gateway, first["decision_id"], "ok", key="dev-alerts-key")
    again = await gateway.call("send_notification", ALERT, idempotency_key=key, run_id="r1", **SEND)
    assert again["result"] == now["result"]
    assert gateway.travel.arrivals.count("POST /notifications") == 1
    kinds = [record["kind"] for record in (await gateway.decision(first["decision_id"]))["linked"]]
    assert kinds == ["outcome", "resolution", "replay"]


async def test_shows_operators_what_budgets_hold(gateway: Gateway):
    await gateway.call("search_hotels", {"city": "Paris, France"}, run_id="r1")
    status, page = await gateway.get("/v1/budgets", key=OPERATOR)
    assert status == 200
    (row,) = [row for row in page["items"] if row["name"] == "run_calls"]
    assert (row["scope"], row["unit"], row["limit"], row["spent"], row["reserved"]) == (
        [["travel-assistant", "r1"]],
        "calls",
        "40",
        "1",
        "0",
    )


@pytest.mark.parametrize("count", [8])
async def test_decides_parallel_calls_one_after_the_other_where_policy_looks_at_facts(gateway: Gateway, count: int):
    """Only if none was sent: the sample's notification is suppressed when the same one was delivered."""
    calls = (gateway.call("send_notification", ALERT, idempotency_key=new_key(), run_id=f"r{n}", **SEND) for n in range(count))
    answers = await asyncio.gather(*calls)
    codes = [answer["result"]["reason_code"] for answer in answers]
    assert sorted(codes) == ["EXECUTION_SUCCEEDED"] + ["SUPPRESSED_DUPLICATE"] * (count - 1)
    assert gateway.travel.arrivals.count("POST /notifications") == 1
