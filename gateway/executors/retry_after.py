"""Reading the Retry-After header (RFC 9110, section 10.2.3)."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_MS = 3_600_000
"""What asks for more than an hour is told as an hour."""

_SECONDS = re.compile(r"[0-9]+")


def read_retry_after(header: str | None, now: datetime) -> int | None:
    """Milliseconds from `now` (aware) that a header asks for, from 0 to an hour; None where it is absent or says nothing."""
    if header is None:
        return None
    text = header.strip()
    if _SECONDS.fullmatch(text):
        return MAX_RETRY_AFTER_MS if len(text.lstrip("0")) > 4 else min(int(text) * 1000, MAX_RETRY_AFTER_MS)
    try:
        at = parsedate_to_datetime(text)
        left = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return min(max(int(left.total_seconds() * 1000), 0), MAX_RETRY_AFTER_MS)
