"""What is reserved: never more than the limit, given back exactly once, and counted in the window of its reservation."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import asyncpg
import pytest
import yaml

from gateway.api.services import SERVICES
from gateway.app import Running
from gateway.ledger.embedded import EmbeddedPostgres
from tests.acceptance.conftest import Gateway, OpenGateway, Watch, new_key
from tests.conftest import url_of
from tests.fakes import functions

OPERATOR = "dev-operator-key"
MODULES = {"python_modules": ["tests.fakes.functions"]}
BERLIN = ZoneInfo("Europe/Berlin")
STAYING = 10
"""Clients of a hundred that wait for their answer, so that some calls get far on a slow machine too."""

AddTool = Callable[..., None]


@pytest.fixture(autouse=True)
def _no_arrivals() -> None:  # pyright: ignore[reportUnusedFunction]
    functions.ARRIVALS.clear()


def _write_budgets(bundle: Path, *budgets: dict[str, Any]) -> None:
    (bundle / "budgets.yaml").write_text(yaml.safe_dump(list(budgets)))


async def _budgets(gateway: Gateway) -> dict[tuple[str, str], tuple[str, str]]:
    """(reserved, spent) by name and period."""
    status, page = await gateway.get("/v1/budgets", key=OPERATOR)
    assert status == 200, page
    return {(item["name"], item["period"]): (item["reserved"], item["spent"]) for item in page["items"]}


async def _leave(call: Any, after_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(after_s):
            await call


@asynccontextmanager
async def _locked_budgets(database_url: str) -> AsyncGenerator[None]:
    """Somebody else holds every budget row."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM budgets FOR UPDATE")
            yield
    finally:
        await connection.close()


async def test_clients_that_leave_and_a_tool_that_refuses_leave_no_money_reserved_or_spent(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool
):
    """Case 25: a hundred clients leave at any moment, the tool refuses all."""
    add_tool("paid", "reject_after_a_moment", risk="write", replay="never", idempotency="caller", facts="none", cost={"usd": "1.00"})
    _write_budgets(copied_bundle, {"name": "spend", "per": ["subject"], "unit": "usd", "limit": "1000"})
    watch = Watch()
    gateway = await open_with(copied_bundle, prepare=watch.begin, **MODULES)
    chance = random.Random(25)  # noqa: S311 - reproducible, not secret
    calls = [gateway.call("paid", {"n": n}, workflow="trip_booking", idempotency_key=new_key()) for n in range(100)]
    leaving = [_leave(call, chance.uniform(0, 0.4)) for call in calls[STAYING:]]
    stayed, *_ = await asyncio.gather(asyncio.gather(*calls[:STAYING]), *leaving)
    assert {answer["result"]["reason_code"] for answer in stayed} == {"EXECUTION_REJECTED"}
    await watch.until_rest(gateway)
    assert await _budgets(gateway) == {("spend", "total"): ("0", "0")}


async def test_a_client_that_leaves_while_its_reservation_waits_changes_no_balance(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool, database_url: str
):
    """Case 25: the reservation waits for a lock when its client leaves; it is taken and settled once, as if nobody had left."""
    add_tool("paid", "note", cost={"usd": "1.00"})
    _write_budgets(copied_bundle, {"name": "spend", "per": ["subject"], "unit": "usd", "limit": "1000"})
    watch = Watch()
    gateway = await open_with(copied_bundle, prepare=watch.begin, **MODULES)
    await gateway.call("paid", {"n": 0})
    async with _locked_budgets(database_url):
        await _leave(gateway.call("paid", {"n": 1}), 0.3)
    await watch.until_rest(gateway)
    # Where the lock was held for longer than a reservation waits, it was not taken, and the tool not called.
    assert await _budgets(gateway) == {("spend", "total"): ("0", str(len(functions.ARRIVALS)))}


async def test_what_cannot_be_reserved_is_not_executed_and_stops_nobody_else(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool, database_url: str
):
    """Case 26: the budget's row cannot be had; the tool without a budget still works."""
    add_tool("paid", "note", cost={"usd": "1.00"})
    add_tool("free", "note")
    _write_budgets(copied_bundle, {"name": "spend", "per": ["subject"], "unit": "usd", "limit": "1000", "tools": ["paid"]})
    gateway = await open_with(copied_bundle, **MODULES)
    await gateway.call("paid", {"n": 0})
    functions.ARRIVALS.clear()
    key = new_key()
    async with _locked_budgets(database_url):
        paid, free = await asyncio.gather(
            gateway.call("paid", {"n": 1}, run_id="r1", idempotency_key=key), gateway.call("free", {"n": 1}, run_id="r2")
        )
        assert (paid["result"]["status"], paid["result"]["reason_code"]) == ("temporary_error", "LEDGER_UNAVAILABLE")
        assert free["result"]["status"] == "ok"
    assert [arrival["args"] for arrival in functions.ARRIVALS] == [{"n": 1}]
    again = await gateway.call("paid", {"n": 1}, run_id="r1", idempotency_key=key)
    assert (again["result"]["status"], again["replayed"]) == ("ok", False)
    assert await _budgets(gateway) == {("spend", "total"): ("0", "2")}


async def test_a_reservation_that_the_database_forbids_is_not_executed(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool, database_url: str, postgres: EmbeddedPostgres
):
    """Case 26: the statement itself is refused."""
    add_tool("paid", "note", cost={"usd": "1.00"})
    add_tool("free", "note")
    _write_budgets(copied_bundle, {"name": "spend", "per": ["subject"], "unit": "usd", "limit": "1000", "tools": ["paid"]})
    gateway = await open_with(copied_bundle, **MODULES)
    owner = await asyncpg.connect(url_of(postgres.owner_url, urlsplit(database_url).path.lstrip("/"), "postgres"))
    await owner.execute("REVOKE INSERT, UPDATE ON budgets FROM gateway_app")
    paid = await gateway.call("paid", {"n": 1})
    free = await gateway.call("free", {"n": 2})
    assert (paid["result"]["status"], free["result"]["status"]) == ("temporary_error", "ok")
    assert [arrival["args"] for arrival in functions.ARRIVALS] == [{"n": 2}]
    await gateway.decision(paid["decision_id"])
    await owner.execute("GRANT INSERT, UPDATE ON budgets TO gateway_app")
    assert (await gateway.call("paid", {"n": 1}))["result"]["status"] == "ok"
    await owner.close()


@pytest.mark.parametrize("day", ["2026-06-01", "2026-10-25", "2027-03-28"], ids=["24 hours", "25 hours", "23 hours"])
async def test_a_day_begins_at_local_midnight_and_a_call_counts_where_it_was_reserved(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool, day: str
):
    """Case 27: also on the days on which Berlin changes its clocks."""
    add_tool("daily", "wait_a_moment")
    _write_budgets(
        copied_bundle,
        {"name": "once", "per": ["subject"], "unit": "calls", "limit": 1, "window": {"every": "day", "timezone": "Europe/Berlin"}},
    )
    midnight = datetime.fromisoformat(day).replace(tzinfo=BERLIN) + timedelta(days=1)
    now = [midnight - timedelta(seconds=1)]

    async def set_clock(running: Running) -> None:
        running.app[SERVICES] = replace(running.app[SERVICES], now=lambda: now[0])

    gateway = await open_with(copied_bundle, prepare=set_clock, **MODULES)
    running = asyncio.create_task(gateway.call("daily", {"n": 1}))
    async with asyncio.timeout(30):
        while not functions.ARRIVALS:  # noqa: ASYNC110 - the tool runs in the gateway
            await asyncio.sleep(0.01)
    assert (await gateway.call("daily", {"n": 2}))["result"]["reason_code"] == "BUDGET_CALLS_EXHAUSTED"
    now[0] = midnight + timedelta(seconds=3)
    assert (await running)["result"]["status"] == "ok"
    assert list((await _budgets(gateway)).values()) == [("0", "1")]
    now[0] = midnight
    assert (await gateway.call("daily", {"n": 3}))["result"]["status"] == "ok"
    assert (await gateway.call("daily", {"n": 4}))["result"]["reason_code"] == "BUDGET_CALLS_EXHAUSTED"
    assert list((await _budgets(gateway)).values()) == [("0", "1"), ("0", "1")]
