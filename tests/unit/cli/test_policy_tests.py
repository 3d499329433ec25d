"""``gateway policy test`` as an author runs it."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway

TRAVEL = Path(__file__).parents[3] / "policies" / "travel"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRAVEL, tmp_path / "travel"))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(gateway, ["policy", "test", *map(str, arguments)])


def test_the_travel_bundle_reaches_every_rule_line_and_reason_code() -> None:
    result = run(TRAVEL, "--coverage", "--threshold", "100", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {each["kind"] for each in document["results"]} == {"rego", "case"}
    coverage = document["coverage"]
    assert [coverage[what]["missing"] for what in ("rules", "lines", "reason_codes")] == [[], [], []]


def test_failures_exit_4_with_the_failing_statement_and_its_values(folder: Path) -> None:
    limit = folder / "data/travel/data.yaml"
    limit.write_text(limit.read_text().replace("2000000000", "20"))
    result = run(folder, "--run", "shipped_limits|exactly the limit")
    assert result.exit_code == 4
    assert f"{folder.as_posix()}/rego/travel/booking_test.rego:42: test_the_shipped_limits_know_both_tiers is not true" in result.stdout
    assert 'line 43: count(booking.deny) == 0 with input as booking_for("gold", 300000001)' in result.stdout
    assert "count(booking.deny) is 1" in result.stdout
    assert "came out as deny X_BOOKING_LIMIT_BY_TIER" in result.stdout
    assert "0 of 2 tests and cases passed" in result.stderr
    suites = ET.fromstring(run(folder, "--run", "shipped_limits|exactly the limit", "-o", "junit").stdout)  # noqa: S314 - ours
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [("rego", "1"), ("case", "1")]


def test_too_little_reached_and_nothing_run_exit_4(folder: Path) -> None:
    result = run(folder, "--run", "a_cancellation", "--threshold", "90")
    assert (result.exit_code, "less than 90 %" in result.stderr) == (4, True)
    assert "rego/travel/search.rego:7: allow never fired" in result.stdout
    result = run(folder, "--run", "no such test")
    assert (result.exit_code, "no test or case ran" in result.stderr) == (4, True)


def test_files_that_are_not_in_order_exit_3(folder: Path) -> None:
    (folder / "workflows.yaml").unlink()
    assert run(folder).exit_code == 3
