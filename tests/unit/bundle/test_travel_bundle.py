"""The sample bundle: what it declares, and that it may be activated as it is."""

from pathlib import Path

from gateway import app
from gateway.bundle import CheckedBundle, load_bundle
from gateway.domain.catalogue import MICRO

TRAVEL = Path(__file__).parents[3] / "policies" / "travel"


async def test_the_sample_bundle_may_be_activated_without_a_warning():
    report = await app.check(TRAVEL)

    assert report.all_findings == ()
    assert report.is_good


def test_every_tool_of_the_sample_keeps_its_arguments_for_auditors():
    checked = load_bundle(TRAVEL)

    assert isinstance(checked, CheckedBundle)
    assert {tool.declaration.record.level for tool in checked.bundle.tools.values()} == {"arguments"}
    assert checked.bundle.tools["book_hotel"].declaration.record.redact == ["/args/cardToken"]


def test_the_limits_of_the_sample_are_integers_in_micro_units():
    checked = load_bundle(TRAVEL)

    assert isinstance(checked, CheckedBundle)
    assert checked.bundle.policy.data == {"travel": {"booking_limits": {"gold": 2000 * MICRO, "basic": 300 * MICRO}}}
