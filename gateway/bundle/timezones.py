"""Names of time zones."""

import re
from zoneinfo import ZoneInfo

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")


def has_zone(name: str) -> bool:
    """Whether a time zone exists in the IANA list of this host."""
    if not _ZONE.fullmatch(name):
        return False
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return name == "UTC"
    return True
