"""Operators' routes over a ledger in memory, behind a real server."""

import base64
from datetime import timedelta, timezone
from typing import Any
from uuid import UUID

import orjson
import pytest
from aiohttp.test_utils import TestClient
from uuid_utils.compat import uuid7

from gateway.api.operations import write_amount
from gateway.domain.outcome import CallState
from gateway.domain.ports import BudgetRow
from tests.fakes.operations import NOON, FakeOperations, a_call, serve_operations

EVIDENCE = "the hotel's own list shows booking B-17"
Client = TestClient[Any, Any]


async def get(client: Client, path: str, *, key: str = "olga", **params: str) -> tuple[int, Any]:
    async with client.get(path, params=params, headers={"Authorization": f"Bearer {key}"}) as response:
        return response.status, await response.json(content_type=None)


async def resolve(client: Client, decision_id: UUID | str, *, key: str = "olga", **body: Any) -> tuple[int, Any]:
    sent = {"outcome": "happened", "evidence": EVIDENCE} | body
    path = f"/v1/calls/{decision_id}/resolve"
    async with client.post(path, json=sent, headers={"Authorization": f"Bearer {key}"}) as response:
        return response.status, await response.json(content_type=None)


def row(name: str = "run_calls", **changes: Any) -> BudgetRow:
    plain: dict[str, Any] = {"scope": '["ada"]', "period": "total", "unit": "usd", "limit": 500_000_000, "reserved": 0, "spent": 0}
    return BudgetRow(name=name, **(plain | changes))


async def test_lists_calls_in_doubt_unless_another_state_is_asked_for():
    paris = timezone(timedelta(hours=1))
    doubted = a_call(admitted_at=NOON.astimezone(paris))
    done = a_call(state=CallState.SUCCEEDED, status="ok", reason_code="EXECUTION_SUCCEEDED", finished_at=NOON.replace(microsecond=1))
    async with serve_operations(FakeOperations(calls={"default": [doubted, done]})) as client:
        assert await get(client, "/v1/calls") == (
            200,
            {
                "items": [
                    {
                        "decision_id": str(doubted.decision_id),
                        "state": "in_doubt",
                        "status": None,
                        "reason_code": None,
                        "agent": "travel-assistant",
                        "subject": "ada",
                        "run_id": "run-1",
                        "workflow": "trip_booking",
                        "tool": "book_hotel",
                        "replay": "never",
                        "admitted_at": "2026-03-01T12:00:00Z",
                        "lease_until": "2026-03-01T12:00:13Z",
                        "finished_at": None,
                        "attempts": 1,
                    }
                ],
                "next_cursor": None,
            },
        )
        _, succeeded = await get(client, "/v1/calls", state="succeeded")
        assert [(item["status"], item["finished_at"]) for item in succeeded["items"]] == [("ok", "2026-03-01T12:00:00.000001Z")]


async def test_pages_follow_each_other_and_the_last_one_says_so():
    calls = [a_call() for _ in range(5)]
    async with serve_operations(FakeOperations(calls={"default": calls})) as client:
        pages: list[list[str]] = []
        params = {"limit": "2"}
        while True:
            _, page = await get(client, "/v1/calls", **params)
            pages.append([item["decision_id"] for item in page["items"]])
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [each for page in pages for each in page] == [str(call.decision_id) for call in calls]


async def test_a_full_last_page_has_no_next_one():
    async with serve_operations(FakeOperations(calls={"default": [a_call(), a_call()]})) as client:
        _, page = await get(client, "/v1/calls", limit="2")
    assert (len(page["items"]), page["next_cursor"]) == (2, None)


async def test_a_cursor_belongs_to_its_list_and_tenant():
    fake = FakeOperations(calls={"default": [a_call(), a_call()]}, budgets={"default": [row("a"), row("b")]})
    async with serve_operations(fake) as client:
        _, page = await get(client, "/v1/calls", limit="1")
        _, budgets = await get(client, "/v1/budgets", limit="1")
        cursor = page["next_cursor"]
        refused = [
            await get(client, "/v1/calls", cursor=cursor, state="open"),
            await get(client, "/v1/calls", cursor=cursor, key="otto"),
            await get(client, "/v1/budgets", cursor=cursor),
            await get(client, "/v1/calls", cursor=budgets["next_cursor"]),
            await get(client, "/v1/calls", cursor="é"),
        ]
    assert [(status, problem["code"]) for status, problem in refused] == [(400, "CURSOR_INVALID")] * 5


@pytest.mark.parametrize("place", [None, 7, "no id", ["a", "b"], ["a", "b", "c\0"], {"a": 1}])
async def test_a_forged_place_in_a_cursor_is_refused(place: Any):
    fake = FakeOperations(calls={"default": [a_call(), a_call()]}, budgets={"default": [row("a"), row("b")]})
    async with serve_operations(fake) as client:
        for path in ("/v1/calls", "/v1/budgets"):
            _, page = await get(client, path, limit="1")
            decoded = base64.urlsafe_b64decode(page["next_cursor"])
            forged = [decoded[:16] + orjson.dumps(place), orjson.dumps(place), b""]
            # And each bit of a true one matters.
            forged += [decoded[:at] + bytes([decoded[at] ^ 1]) + decoded[at + 1 :] for at in range(len(decoded))]
            for cursor in forged:
                status, problem = await get(client, path, cursor=base64.urlsafe_b64encode(cursor).decode())
                assert (status, problem["code"]) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "201"}, {"limit": "0000010"}, {"limit": "²"}, {"state": "lost"}])
async def test_unusable_parameters_are_named(params: dict[str, str]):
    async with serve_operations(FakeOperations()) as client:
        status, problem = await get(client, "/v1/calls", **params)
    assert (status, problem["code"], f"`{next(iter(params))}`" in problem["detail"]) == (400, "PARAMETER_INVALID", True)


@pytest.mark.parametrize(("outcome", "state"), [("happened", "succeeded"), ("did_not_happen", "open")])
async def test_a_person_ends_a_doubt_with_evidence_that_only_the_record_holds(outcome: str, state: str):
    call = a_call()
    fake = FakeOperations(calls={"default": [call]})
    async with serve_operations(fake) as client:
        found = await resolve(client, call.decision_id, outcome=outcome, evidence=f"  {EVIDENCE} ")
    assert found == (200, {"decision_id": str(call.decision_id), "state": state})
    assert list(fake.records.values()) == [{"tenant": "default", "about": call.decision_id, "evidence": EVIDENCE, "by": "olga"}]


async def test_a_doubt_is_ended_once_even_with_the_same_answer():
    call, done = a_call(), a_call(state=CallState.SUCCEEDED)
    fake = FakeOperations(calls={"default": [call, done]})
    async with serve_operations(fake) as client:
        assert (await resolve(client, call.decision_id))[0] == 200
        again = [
            await resolve(client, call.decision_id),
            await resolve(client, call.decision_id, outcome="did_not_happen"),
            await resolve(client, done.decision_id),
        ]
    detail = "The call is not in doubt; it is succeeded."
    assert [(status, problem["code"], problem["detail"]) for status, problem in again] == [(409, "NOT_IN_DOUBT", detail)] * 3
    assert len(fake.records) == 1


async def test_unknown_calls_and_those_of_other_tenants_are_not_found():
    call = a_call()
    async with serve_operations(FakeOperations(calls={"default": [call]})) as client:
        found = [await resolve(client, uuid7()), await resolve(client, "no-id"), await resolve(client, call.decision_id, key="otto")]
    assert [(status, problem["code"]) for status, problem in found] == [(404, "NOT_FOUND")] * 3


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"evidence": "too short"}, "/evidence"),
        ({"evidence": "x" * 2_001}, "/evidence"),
        ({"evidence": "short" + " " * 20}, "/evidence"),
        ({"evidence": "two lines\nare not one"}, "/evidence"),
        ({"evidence": "moves the \x1b[2J cursor"}, "/evidence"),
        ({"evidence": "ends with nothing\0"}, "/evidence"),
        ({"evidence": None}, "/evidence"),
        ({"outcome": "perhaps"}, "/outcome"),
        ({"note": "unknown"}, "/note"),
    ],
)
async def test_a_resolution_without_usable_evidence_or_outcome_changes_nothing(change: dict[str, Any], pointer: str):
    call = a_call()
    fake = FakeOperations(calls={"default": [call]})
    async with serve_operations(fake) as client:
        status, problem = await resolve(client, call.decision_id, **change)
    assert (status, problem["code"], [error["pointer"] for error in problem["errors"]]) == (400, "ENVELOPE_INVALID", [pointer])
    assert (fake.records, fake.calls["default"]) == ({}, [call])


async def test_lone_surrogates_in_evidence_are_refused_not_replaced():
    call = a_call()
    fake = FakeOperations(calls={"default": [call]})
    body = b'{"outcome": "happened", "evidence": "seen in the list \\ud800"}'
    headers = {"Authorization": "Bearer olga", "Content-Type": "application/json"}
    async with (
        serve_operations(fake) as client,
        client.post(f"/v1/calls/{call.decision_id}/resolve", data=body, headers=headers) as response,
    ):
        assert (response.status, (await response.json(content_type=None))["code"]) == (400, "ENVELOPE_INVALID")
    assert fake.records == {}


async def test_amounts_of_budgets_are_exact_decimals_in_texts():
    rows = [
        row("run_calls", scope='[["travel-assistant","run-1"]]', unit="calls", limit=40_000_000, spent=3_000_000, reserved=1_000_000),
        row("spend", period="day 2026-03-01 UTC", limit=500_000_000, reserved=100_000, spent=9_007_199_254_740_993),
        row("spend_of_old", scope="[]", limit=None, spent=1),
    ]
    async with serve_operations(FakeOperations(budgets={"default": rows})) as client:
        status, page = await get(client, "/v1/budgets")
    words = ("name", "scope", "period", "unit", "limit", "reserved", "spent", "available")
    assert status == 200
    assert [tuple(item[word] for word in words) for item in page["items"]] == [
        ("run_calls", [["travel-assistant", "run-1"]], "total", "calls", "40", "1", "3", "36"),
        ("spend", ["ada"], "day 2026-03-01 UTC", "usd", "500", "0.1", "9007199254.740993", "0"),
        ("spend_of_old", [], "total", "usd", None, "0", "0.000001", None),
    ]


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "0"), (1, "0.000001"), (100_000, "0.1"), (10_000_000, "10"), (-1_500_000, "-1.5"), (2**63 - 1, "9223372036854.775807")],
)
def test_an_amount_is_its_shortest_exact_decimal(micro: int, text: str):
    assert write_amount(micro) == text


async def test_budgets_are_paged_by_their_key():
    rows = [row("a", period="p1"), row("a", period="p2"), row("b", scope='["ada"]'), row("b", scope='["bob"]')]
    async with serve_operations(FakeOperations(budgets={"default": rows})) as client:
        _, first = await get(client, "/v1/budgets", limit="3")
        _, second = await get(client, "/v1/budgets", limit="3", cursor=first["next_cursor"])
    keys = [(item["name"], item["scope"], item["period"]) for page in (first, second) for item in page["items"]]
    assert keys == [("a", ["ada"], "p1"), ("a", ["ada"], "p2"), ("b", ["ada"], "total"), ("b", ["bob"], "total")]
    assert second["next_cursor"] is None


async def test_operators_routes_are_for_operators_and_agents_routes_are_not():
    call = a_call()
    async with serve_operations(FakeOperations(calls={"default": [call]})) as client:
        for key, expected in (("agnes", 403), ("nobody", 401)):
            statuses = [
                (await get(client, "/v1/calls", key=key))[0],
                (await get(client, "/v1/budgets", key=key))[0],
                (await resolve(client, call.decision_id, key=key))[0],
            ]
            assert statuses == [expected] * 3
        assert (await get(client, f"/v1/calls/{call.decision_id}"))[0] == 403
        async with client.post("/v1/calls", json={}, headers={"Authorization": "Bearer olga"}) as response:
            assert response.status == 403


async def test_a_path_with_two_roles_still_names_both_its_methods():
    async with serve_operations(FakeOperations()) as client, client.delete("/v1/calls") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, POST")


async def test_a_lost_ledger_is_a_503_and_a_resolution_does_not_claim_that_nothing_was_done():
    call = a_call()
    async with serve_operations(FakeOperations(calls={"default": [call]}, is_lost=True)) as client:
        listed = await get(client, "/v1/calls")
        resolved = await resolve(client, call.decision_id)
    assert [(status, problem["code"]) for status, problem in (listed, resolved)] == [(503, "LEDGER_UNAVAILABLE")] * 2
    assert resolved[1]["detail"] == "It is not known whether this was written. Look at the call before you repeat it."
