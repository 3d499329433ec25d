"""A model's turn and the calls in it, whatever the dialect."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gateway.domain.result import Answer

MAX_WIRE_ID = 512
"""Characters of a call's id on the gateway's wire. Ids of a turn may be longer: some proxies carry a signature in them."""

ERROR_STATUSES = frozenset({"invalid_arguments", "blocked", "temporary_error", "failed", "outcome_unknown"})
"""Statuses that dialects with a flag for errors mark: the model did not get what it asked for, and nobody is on the way to give it."""


class TurnUnreadable(ValueError):
    """The turn does not have the shape of its dialect, so nobody can say how many calls it holds."""


@dataclass(frozen=True, kw_only=True)
class TurnCall:
    """One call of a turn, as the model wrote it: nothing is coerced, nothing is filled in."""

    pointer: str
    """JSON pointer of the call within the turn."""
    args_pointer: str = ""
    """JSON pointer of its arguments; defects of the turn's text at or below it belong to this call."""
    id: str | None = None
    """None where the model gave no usable id."""
    name: str | None = None
    """None where the model wrote none, or something that is not text."""
    args: Any = None
    """Any JSON value; None where it was absent, or where `args_text` has it."""
    args_text: str | None = None
    """The arguments as JSON text, where the dialect writes them so; whatever the model wrote there."""
    is_cut_off: bool = False
    """The model was stopped while it wrote this call, so its arguments are not what it wanted to say."""
    echoed: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields that its answer carries back as they are."""

    @property
    def wire_id(self) -> str | None:
        """The id for the gateway's wire: equal for equal ids, and never too long."""
        if self.id is None or len(self.id) <= MAX_WIRE_ID:
            return self.id
        return self.id[:64] + "…sha256:" + hashlib.sha256(self.id.encode("utf-8", "surrogatepass")).hexdigest()

    def as_wire(self) -> dict[str, Any]:
        """The call object of ``/v1/rounds``: ``id``, ``name`` and ``args`` only where the model gave them.

        Arguments that are no strict JSON, or were cut off, go as text, which no tool accepts.
        """
        fields = {"id": self.wire_id, "name": self.name, "args": self._carried_args()}
        return {name: value for name, value in fields.items() if value is not None}

    def _carried_args(self) -> Any:
        args = self.args if self.args_text is None else _read_strictly(self.args_text)
        try:
            text = json.dumps(args, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            return self.args_text or "no JSON"
        return (self.args_text or text) if self.is_cut_off else args


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The calls of one model turn, in order, and how they are answered."""

    calls: tuple[TurnCall, ...]
    write: Callable[[Sequence[TurnCall], Sequence[Answer]], Any]

    def answer(self, answers: Sequence[Answer]) -> Any:
        """The one turn that answers this one, one answer per call in the order of the calls; None where there were no calls.

        ValueError where there is not exactly one answer per call: vendors refuse the conversation from then on.
        """
        if len(self.calls) != len(answers):
            raise ValueError(f"{len(self.calls)} calls need as many answers, not {len(answers)}")
        return self.write(self.calls, answers) if self.calls else None


def text_or_none(value: object) -> str | None:
    """`value` where it is text with something in it."""
    return value if isinstance(value, str) and value else None


def blank_or_text(written: object) -> dict[str, Any]:
    """The fields of a call whose arguments are JSON text. Blank text says as much as no arguments; other values stay as they are."""
    if not isinstance(written, str):
        return {"args": written}
    return {"args_text": written} if written.strip() else {}


def result_document(answer: Answer) -> dict[str, Any]:
    """The result as models read it: what does not apply is left out; `data` alone says something by being null."""
    result = answer.result.model_dump(mode="json")
    told = {name: value for name, value in result.items() if value is not None or name == "data"}
    return {"status": answer.result.status} | told  # the status first, since models read in order


def result_text(answer: Answer) -> str:
    """The result as JSON text, for dialects whose answers are text."""
    return json.dumps(result_document(answer), ensure_ascii=False, separators=(",", ":"))


def _read_strictly(text: str) -> Any:
    """The value of a JSON text, or the text where it is none: unlike Python's own reader without NaN and duplicate keys."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
