"""A call as it stood in a model's turn, whatever the dialect."""

from dataclasses import dataclass
from typing import Any


class TurnUnreadable(ValueError):
    """The turn does not have the shape of its dialect, so nobody can say how many calls it holds."""


@dataclass(frozen=True, kw_only=True)
class TurnCall:
    """One call of a turn, as the model wrote it: nothing is coerced, nothing is filled in."""

    pointer: str
    """JSON pointer of the call within the turn; defects of the turn's text at or below it belong to this call."""
    id: str | None = None
    """None where the model gave no usable id."""
    name: str | None = None
    """None where the model wrote none, or something that is not text."""
    args: Any = None
    """Any JSON value; None where it was absent."""

    def as_wire(self) -> dict[str, Any]:
        """The call object of ``/v1/rounds``: ``id``, ``name`` and ``args`` only where the model gave them."""
        fields = {"id": self.id, "name": self.name, "args": self.args}
        return {name: value for name, value in fields.items() if value is not None}
