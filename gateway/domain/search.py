"""What a search of the decision log can say, as values, and what each part of it means.

A search is a list of terms that must all hold. `query_language.py` reads one from text; the ledger answers it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gateway.domain.catalogue import Risk
from gateway.domain.reasons import Effect, Status
from gateway.domain.record import KINDS

SEARCH_FIELDS: Mapping[str, str] = {
    "agent": "agent",
    "subject": "subject",
    "tool": "tool",
    "run": "run_id",
    "workflow": "workflow",
    "kind": "kind",
    "effect": "effect",
    "reason": "reason_code",
    "status": "status",
    "stage": "stage",
    "risk": "risk",
}
"""Word of a query -> field of a record."""
CLOSED_VALUES: Mapping[str, tuple[str, ...]] = {"kind": KINDS, "effect": tuple(Effect), "status": tuple(Status), "risk": tuple(Risk)}
"""Word of a query -> all that its field can be; a misspelt value would find nothing for ever."""
TIME_WORDS = ("after", "before")
PIVOTS = ("agent", "subject", "tool")
"""The fields that an investigation goes from one to the other by."""
SEARCH_HELP = (
    "Terms such as 'effect:deny tool:book_* -workflow:trip_planning after:2026-11-01 \"card token\"'. All terms must hold; values of one "
    "field are alternatives (effect:deny,confirm, or the term again); -field:value must not hold; * stands for any text. Anything else is "
    "looked for among the safe words of a record: argument names, policies, rules, details, evidence. Times are UTC and half-open: at or "
    f"after `after`, and before `before`. Fields: {', '.join(SEARCH_FIELDS)}. "
) + " ".join(f"{word} is one of {', '.join(values)}." for word, values in CLOSED_VALUES.items())
"""One paragraph for people who write queries."""

MAX_WORD = 64

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A value of a field: its literal parts, with any text between two of them. One part is the value itself."""

    parts: tuple[str, ...]

    @property
    def exact(self) -> str | None:
        """The only value that matches, where there is one."""
        return self.parts[0] if len(self.parts) == 1 else None

    def matches(self, value: str) -> bool:
        """Whether `value` is meant."""
        return re.fullmatch(".*".join(map(re.escape, self.parts)), value, re.DOTALL) is not None


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Words that stand next to each other in this order; `is_prefix`: the last one is only the beginning of a word."""

    words: tuple[str, ...]
    is_prefix: bool = False


@dataclass(frozen=True, kw_only=True)
class Search:
    """Everything must hold. The window of times is half-open: [after, before)."""

    wanted: Mapping[str, tuple[Pattern, ...]] = field(default_factory=dict[str, tuple[Pattern, ...]])
    """Field of a record -> alternatives, one of which must match."""
    unwanted: Mapping[str, tuple[Pattern, ...]] = field(default_factory=dict[str, tuple[Pattern, ...]])
    """Field of a record -> what must not match; a record without the field passes."""
    phrases: tuple[Phrase, ...] = ()
    unwanted_phrases: tuple[Phrase, ...] = ()
    after: datetime | None = None
    before: datetime | None = None


def split_words(text: str) -> list[str]:
    """The words of a text as searches compare them: runs of letters and digits, in lower case; long ones are cut."""
    return [word.lower()[:MAX_WORD] for word in _WORD.findall(text)]
