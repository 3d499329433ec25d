"""The nearest known name, for the sentence that says how to mend a finding."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """``Did you mean `…`?`` where a known name is close, else `otherwise`."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f"Did you mean `{close[0]}`?" if close else otherwise
