"""Regorus' error texts: a picture of the place and a sentence; there are no kinds."""

import re

_PLACE = re.compile(r"^\s*-->\s*(.+:\d+:\d+)\s*$", re.MULTILINE)


def explain_error(text: str) -> str:
    """The sentence of an error and its place, such as ``could not parse string as number (rego/a.rego:3:6)``; at most 300 characters."""
    sentence = text.rsplit("error:", 1)[-1].strip().split("\n", 1)[0].strip() or "unknown error"
    place = _PLACE.search(text)
    return f"{sentence[:200]} ({place[1][-90:]})" if place else sentence[:300]
