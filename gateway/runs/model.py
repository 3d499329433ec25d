"""What the loop needs of a model: the next turn, or why there is none."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class ModelFault(Exception):
    """The model gave no turn. The text is a status or the name of an error, never what the service wrote."""

    def __init__(self, problem: str, *, is_transient: bool, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_transient = is_transient
        self.retry_after_s = retry_after_s


class Model(Protocol):
    """Gives the next turn of a conversation."""

    async def ask(self, model: str, contents: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> bytes:
        """The body of a ``generateContent`` answer, exactly as it came. Raises ModelFault."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
