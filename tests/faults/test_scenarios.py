"""Each scenario, without a planted bug, breaks nothing."""

import pytest

from tests.faults.fleet import open_fleet
from tests.faults.harness import judge, summarize
from tests.faults.scenarios import SCENARIOS, Stage


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_breaks_nothing(name: str, database_url: str):
    with open_fleet(database_url) as fleet:
        await SCENARIOS[name](Stage(fleet=fleet, environment={}))
        found = await judge(fleet, name, wait_s=10)
    assert found == [], summarize(found)
