"""What the wire models of several routes have in common, and the places that cursors of their lists go on after."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict

Time = Annotated[datetime, AfterValidator(lambda time: time.astimezone(UTC))]
"""A moment, told in UTC."""


class Body(BaseModel):
    """A request body: nothing unknown, nothing converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def read_id_place(place: Any) -> UUID | None:
    """The place in a list that is in the order of ids."""
    try:
        return UUID(place) if isinstance(place, str) else None
    except ValueError:
        return None


def read_timed_place(place: Any) -> tuple[datetime, str] | None:
    """The place in a list that is in the order of times, and of names where those are equal."""
    match place:
        case [str(at), str(name)] if "\0" not in name:  # PostgreSQL refuses U+0000
            try:
                return datetime.fromisoformat(at), name
            except ValueError:
                return None
        case _:
            return None
