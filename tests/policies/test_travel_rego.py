"""The sample bundle's own Rego tests, and that its policies pass the checks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.domain.reasons import Effect
from gateway.policy.analysis import analyse
from gateway.policy.checks.names import DeclaredNames
from gateway.policy.modules import TEST_SUFFIX, assemble
from gateway.policy.rego_tests import run_tests

TRAVEL = Path(__file__).parents[2] / "policies" / "travel"


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return {path.relative_to(TRAVEL).as_posix(): path.read_text("utf-8") for path in sorted(TRAVEL.glob("rego/**/*.rego"))}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return {"travel": yaml.safe_load((TRAVEL / "data/travel/data.yaml").read_text("utf-8"))}


def test_every_policy_has_a_test_beside_it(modules: dict[str, str]) -> None:
    policies = {file for file in modules if not file.endswith(TEST_SUFFIX)}
    assert policies
    assert {file.removesuffix(".rego") + TEST_SUFFIX for file in policies} == modules.keys() - policies


def test_passes_its_own_tests(modules: dict[str, str], data: dict[str, Any]) -> None:
    assert run_tests(assemble(modules, data, "sha256:travel"), modules) == []


def test_passes_the_checks(modules: dict[str, str], data: dict[str, Any]) -> None:
    declared = DeclaredNames(
        tools=frozenset(
            {"search_hotels", "get_itinerary", "book_hotel", "cancel_booking", "send_notification", "open_screen", "copy_to_clipboard"}
        ),
        workflows=frozenset({"trip_planning", "trip_booking", "trip_alerts"}),
        attributes=frozenset({"tier", "timezone", "quiet_hours"}),
    )
    own_codes = {"X_BOOKING_LIMIT_BY_TIER": Effect.DENY, "X_NOT_THE_READER": Effect.DENY}
    assert analyse(modules, data, argument_names=frozenset({"to"}), own_codes=own_codes, declared=declared) == []
