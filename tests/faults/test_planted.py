"""Each planted bug, switched on alone, is caught by its scenario as one of the invariants that it breaks."""

import pytest

from gateway.ledger.embedded import EmbeddedPostgres
from tests.faults.fleet import Launcher
from tests.faults.harness import fresh_fleet, judge, summarize
from tests.faults.planted import BUGS, Bug
from tests.faults.scenarios import GRACE_S, SCENARIOS, Stage


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
async def test_catches_the_planted_bug(bug: Bug, postgres: EmbeddedPostgres, launcher: Launcher, monkeypatch: pytest.MonkeyPatch):
    if bug.pending is not None:
        pytest.skip(f"{bug.name} waits for: {bug.pending}")
    monkeypatch.setenv("PLANT_EXPECTED", "1")
    async with fresh_fleet(postgres, launcher) as fleet:
        await SCENARIOS[bug.scenario](Stage(fleet=fleet, environment={"PLANT": bug.name, "LEASE_GRACE_S": str(GRACE_S)}))
        found = await judge(fleet, bug.name, wait_s=1)
    assert {violation.invariant for violation in found} & bug.caught_as, summarize(found) or "no violation"


def test_at_least_fifteen_bugs_are_planted():
    assert len(BUGS) >= 15
