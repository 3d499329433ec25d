"""The trail of one call through its stages: what the record says about who decided and how long each step took."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Passage(NamedTuple):
    """One stage passed: its name, what came of it, and its duration in milliseconds."""

    name: str
    outcome: str
    ms: float


@dataclass
class Trail:
    """Stages passed so far, in order. The one value of a call that grows; only the enforcer adds to it."""

    passages: list[Passage] = field(default_factory=list)

    def add(self, name: str, outcome: str, seconds: float) -> None:
        """Note a stage with its outcome and duration."""
        self.passages.append(Passage(name, outcome, round(seconds * 1000, 3)))

    def document(self) -> list[dict[str, str | float]]:
        """The JSON form in records."""
        return [{"name": name, "outcome": outcome, "ms": ms} for name, outcome, ms in self.passages]
