"""What a search of the decision log can name: the words for its fields, and the values of those that have a closed list."""

from collections.abc import Mapping

from gateway.domain.reasons import Effect, Status
from gateway.domain.record import KINDS

SEARCH_FIELDS: Mapping[str, str] = {
    "kind": "kind",
    "agent": "agent",
    "subject": "subject",
    "run": "run_id",
    "workflow": "workflow",
    "tool": "tool",
    "effect": "effect",
    "reason": "reason_code",
    "status": "status",
}
"""Word of a query -> field of a record."""
CLOSED_VALUES: Mapping[str, tuple[str, ...]] = {"kind": KINDS, "effect": tuple(Effect), "status": tuple(Status)}
"""Word of a query -> all that its field can be; a misspelt value would find nothing for ever."""
SEARCH_HELP = (
    "Terms field:value, such as 'effect:deny tool:book_hotel'. Terms of one field are alternatives, terms of different fields must all "
    f"hold. Fields: {', '.join(SEARCH_FIELDS)}. "
) + " ".join(f"{field} is one of {', '.join(values)}." for field, values in CLOSED_VALUES.items())
"""One paragraph for people who write queries."""
