"""Each scenario, without a planted bug, breaks nothing."""

import pytest

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.harness import fresh_fleet, judge, summarize
from tests.faults.scenarios import SCENARIOS, Stage


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_breaks_nothing(name: str, postgres: EmbeddedPostgres):
    async with fresh_fleet(postgres) as fleet:
        await SCENARIOS[name](Stage(fleet=fleet, environment={}))
        found = await judge(fleet, name, wait_s=10)
    assert found == [], summarize(found)
