"""Each scenario, without a planted bug, breaks nothing."""

import pytest

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.fleet import Launcher
from tests.faults.harness import fresh_fleet, judge, summarize
from tests.faults.scenarios import GRACE_S, PATIENCE_S, SCENARIOS, Stage


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_breaks_nothing(name: str, postgres: EmbeddedPostgres, launcher: Launcher):
    async with fresh_fleet(postgres, launcher) as fleet:
        await SCENARIOS[name](Stage(fleet=fleet, environment={"LEASE_GRACE_S": str(GRACE_S)}))
        found = await judge(fleet, name, wait_s=PATIENCE_S)
    assert found == [], summarize(found)
