"""Cases 36 and 38 from the agent's side: a call that times out, or that fails again and again, proposed once more each time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.acceptance.conftest import OpenGateway, new_key
from tests.fakes import functions

MODULES = {"python_modules": ["tests.fakes.functions"]}
AddTool = Callable[..., None]


@pytest.fixture(autouse=True)
def _no_arrivals() -> None:  # pyright: ignore[reportUnusedFunction]
    functions.ARRIVALS.clear()


async def test_a_call_that_timed_out_is_not_made_again_under_any_key_and_its_late_answer_settles_it(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool
):
    business = {"key": ["subject", "args.n"], "window": "30m"}
    add_tool("order", "answer_late", risk="write", timeout="300ms", replay="never", idempotency=business)
    gateway = await open_with(copied_bundle, **MODULES)

    async def order(key: str) -> Any:
        return await gateway.call("order", {"n": 1}, workflow="trip_booking", run_id="r1", idempotency_key=key)

    first_key = new_key()
    first = await order(first_key)
    assert (first["result"]["status"], first["result"]["retry_same_input"]) == ("outcome_unknown", False)
    for key in (first_key, new_key()):
        again = await order(key)
        assert (again["result"]["status"], again["decision_id"], again["replayed"]) == ("outcome_unknown", first["decision_id"], True)
    async with asyncio.timeout(30):
        while (settled := await order(first_key))["result"]["status"] != "ok":  # noqa: ASYNC110 - the tool's late answer
            await asyncio.sleep(0.1)
    assert settled["result"]["data"] == {"done": True}
    assert len(functions.ARRIVALS) == 1


async def test_the_same_failing_call_is_stopped_after_three_times_and_its_records_stay_small(
    open_with: OpenGateway, copied_bundle: Path, add_tool: AddTool, database_url: str
):
    add_tool("doomed", "reject_after_a_moment", timeout="5s")
    gateway = await open_with(copied_bundle, **MODULES)
    codes = [(await gateway.call("doomed", {"n": 1}, run_id="r1"))["result"]["reason_code"] for _ in range(30)]
    assert codes == ["EXECUTION_REJECTED"] * 3 + ["LOOP_DETECTED"] * 27
    assert len(functions.ARRIVALS) == 3
    for other in ({"run_id": "r2", "n": 1}, {"run_id": "r1", "n": 2}):
        answer = await gateway.call("doomed", {"n": other["n"]}, run_id=other["run_id"])
        assert answer["result"]["reason_code"] == "EXECUTION_REJECTED"
    connection = await asyncpg.connect(database_url)
    lengths = [row["length"] for row in await connection.fetch("SELECT length(body) FROM records WHERE kind IN ('decision', 'outcome')")]
    await connection.close()
    assert len(lengths) == 2 * 5 + 27
    assert max(lengths) < 8192
