"""Auditors' lists: every record seen exactly once, bad cursors refused, filters that hold."""

import asyncio
import re

import pytest

from gateway.domain.reasons import Status
from gateway.domain.record import KINDS
from tests.acceptance.conftest import AUDITOR, Gateway
from tests.conftest import ROOT

PARIS = {"city": "Paris, France"}


async def _pages(gateway: Gateway, **params: str) -> list[list[int]]:
    pages: list[list[int]] = []
    while True:
        status, page = await gateway.get("/v1/decisions", key=AUDITOR, **params)
        assert status == 200, page
        pages.append([item["position"] for item in page["items"]])
        if page["next_cursor"] is None:
            return pages
        params["cursor"] = page["next_cursor"]
        await gateway.call("delete_everything", {})  # new records arrive between pages


async def test_shows_each_record_exactly_once_while_new_ones_arrive(gateway: Gateway):
    for _ in range(2):
        await gateway.round([{"name": "delete_everything", "args": {}}] * 12)
    seen = [position for page in await _pages(gateway, limit="10") for position in page]
    assert seen == list(range(24, -1, -1))  # 24 refusals and the activation


async def test_filters_by_field_and_time(gateway: Gateway):
    await gateway.call("search_hotels", PARIS)
    blocked = await gateway.call("delete_everything", {}, run_id="run-7")
    status, page = await gateway.get("/v1/decisions", key=AUDITOR, q="effect:deny run:run-7")
    assert (status, [item["decision_id"] for item in page["items"]]) == (200, [blocked["decision_id"]])
    at = page["items"][0]["at"]
    _, later = await gateway.get("/v1/decisions", key=AUDITOR, after=at)
    assert [item["decision_id"] for item in later["items"]] == [blocked["decision_id"]]
    _, earlier = await gateway.get("/v1/decisions", key=AUDITOR, before=at, q="tool:search_hotels")
    assert {item["kind"] for item in earlier["items"]} == {"decision", "outcome"}


@pytest.mark.parametrize("cursor", ["abc", "", "ä", "WzEsMl0=", "bnVsbA==", "WzEwMDAwMDAwMDAwMDAwMDAwMDAwLCJ4Il0="])
async def test_refuses_a_malformed_cursor(gateway: Gateway, cursor: str):
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR, cursor=cursor)
    assert (status, problem["code"]) == (400, "CURSOR_INVALID")


async def test_refuses_a_cursor_of_another_list(gateway: Gateway):
    await gateway.round([{"name": "delete_everything", "args": {}}] * 3)
    _, page = await gateway.get("/v1/decisions", key=AUDITOR, limit="1")
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR, limit="1", cursor=page["next_cursor"], q="effect:deny")
    assert (status, problem["code"]) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"}, {"limit": "x"}, {"limit": "201"}, {"q": "colour:red"}, {"q": "reason:no-code"},
        {"after": "yesterday"}, {"before": "2026-01-01T00:00:00"}, {"after": "0001-01-01T00:00:00+14:00"},
        {"before": "9999-12-31T23:59:59-14:00"}, {"after": "1969-12-31T23:59:59Z"},
        {"after": "2026-01-02T00:00:00Z", "before": "2026-01-01T00:00:00Z"},
        {"after": "2026-01-01T01:00:00+01:00", "before": "2026-01-01T00:00:00Z"},
    ],
)  # fmt: skip
async def test_refuses_strange_parameters(gateway: Gateway, params: dict[str, str]):
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR, **params)
    assert (status, problem["code"]) == (400, "QUERY_INVALID" if "q" in params else "PARAMETER_INVALID")


@pytest.mark.parametrize(
    ("q", "allowed"),
    [("effect:denied", "allow, deny, confirm, suppress"), ("kind:refusal", ", ".join(KINDS)), ("status:done", ", ".join(Status))],
)
async def test_names_the_values_of_a_closed_list_to_who_asks_for_another(gateway: Gateway, q: str, allowed: str):
    status, problem = await gateway.get("/v1/decisions", key=AUDITOR, q=q)
    field = q.partition(":")[0]
    said = {"pointer": "q", "message": f"`{field}` is one of {allowed}.", "offset": len(field) + 1, "length": len(q) - len(field) - 1}
    assert (status, problem["errors"]) == (400, [said])


async def test_takes_terms_of_one_field_as_alternatives_and_of_different_fields_together(gateway: Gateway):
    await gateway.call("search_hotels", PARIS, run_id="run-7")
    await gateway.call("delete_everything", {}, run_id="run-7")
    await gateway.call("delete_everything", {}, run_id="run-8")

    async def found(q: str) -> list[tuple[str, str]]:
        status, page = await gateway.get("/v1/decisions", key=AUDITOR, q=q)
        assert status == 200, page
        return sorted((item["effect"], item["run_id"]) for item in page["items"])

    assert await found("kind:decision effect:deny effect:allow") == [("allow", "run-7"), ("deny", "run-7"), ("deny", "run-8")]
    assert await found("kind:decision effect:deny effect:allow run:run-7") == [("allow", "run-7"), ("deny", "run-7")]
    assert await found("reason:X_A_CODE_OF_AN_EARLIER_REVISION") == []


def test_every_kind_of_record_that_is_written_can_be_searched():
    source = (ROOT / "gateway" / "domain" / "drafts.py").read_text()
    written = set(re.findall(r'RecordDraft\([^)]*kind="([a-z_]+)"', source))
    assert {"decision", "outcome", "replay", "activation"} <= written <= set(KINDS)


@pytest.mark.parametrize("decision_id", ["x", "00000000-0000-7000-8000-000000000000"])
async def test_says_not_found_for_what_is_no_record(gateway: Gateway, decision_id: str):
    status, problem = await gateway.get(f"/v1/decisions/{decision_id}", key=AUDITOR)
    assert (status, problem["code"]) == (404, "NOT_FOUND")


async def test_gives_every_record_its_own_position_without_gaps_under_concurrency(gateway: Gateway):
    await asyncio.gather(*(gateway.call("search_hotels", PARIS) for _ in range(20)))
    seen = [position for page in await _pages(gateway, limit="200") for position in page]
    assert seen == list(range(40, -1, -1))  # a decision and an outcome each, and the activation
