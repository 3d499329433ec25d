"""Every reason code has one status and one bounded sentence, and the page of codes is generated from them."""

from gateway.domain.reasons import ReasonCode, Status
from tests.conftest import ROOT
from tests.generated import reason_codes_page


def test_every_code_has_a_bounded_sentence_and_its_own_name():
    for code in ReasonCode:
        assert code.name == code.value
        assert 10 < len(code.message) <= 160
        assert code.message.endswith(".")


def test_every_status_is_reachable_by_a_code():
    # pending_client is the status of an allowed call that a client performs; no code refuses with it.
    assert {code.status for code in ReasonCode if code.status} == set(Status) - {Status.PENDING_CLIENT}


def test_tells_to_repeat_only_where_nothing_happened():
    assert {status for status in Status if status.retry_same_input} == {
        Status.CONFIRMATION_REQUIRED,
        Status.TEMPORARY_ERROR,
        Status.IN_PROGRESS,
    }


def test_the_page_of_reason_codes_is_up_to_date():
    assert (ROOT / "docs" / "reason-codes.md").read_text() == reason_codes_page(), "run: make docs"
