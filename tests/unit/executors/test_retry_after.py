from datetime import UTC, datetime

import pytest

from gateway.executors.retry_after import MAX_RETRY_AFTER_MS, read_retry_after

NOW = datetime(2026, 12, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "ms"),
    [
        ("0", 0),
        ("30", 30_000),
        (" 30 ", 30_000),
        ("0030", 30_000),
        ("3600", MAX_RETRY_AFTER_MS),
        ("3601", MAX_RETRY_AFTER_MS),
        ("9" * 5000, MAX_RETRY_AFTER_MS),
        ("Wed, 02 Dec 2026 12:00:30 GMT", 30_000),
        ("Wed, 02 Dec 2026 12:00:30 -0000", 30_000),
        ("Wed, 02 Dec 2026 11:00:00 GMT", 0),
        ("Wed, 02 Dec 2099 12:00:00 GMT", MAX_RETRY_AFTER_MS),
    ],
)
def test_reads_seconds_and_dates_up_to_an_hour(header: str, ms: int):
    assert read_retry_after(header, NOW) == ms


@pytest.mark.parametrize("header", [None, "", "soon", "-1", "1.5", "+3", "٣", "Wed, 99 Dec 2026 12:00:30 GMT", "\x00"])
def test_has_no_time_for_what_is_none(header: str | None):
    assert read_retry_after(header, NOW) is None
