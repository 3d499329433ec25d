"""The history of a run, Jepsen style: a line when an operation begins, a line when its client knows more."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from tests.faults.evidence import History, JsonLines, Nemesis, Operation, read_lines


class Recorder:
    """Writes operations and what was done to the system, in the order in which it happened. Safe in several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = JsonLines(path)
        self._numbers = itertools.count()
        self.operations: list[Operation] = []

    def begin(
        self, *, agent: str, subject: str, run_id: str, tool: str, args: Mapping[str, Any], key: str | None, gateway: str
    ) -> Operation:
        """An operation begins."""
        operation = Operation(
            n=next(self._numbers),
            agent=agent,
            subject=subject,
            run_id=run_id,
            tool=tool,
            args=args,
            key=key,
            gateway=gateway,
            began=time.time(),
        )
        self._lines.write({"type": "invoke"} | {name: value for name, value in asdict(operation).items() if name != "type"})
        return operation

    def end(
        self,
        operation: Operation,
        type_: Literal["ok", "fail", "info"],
        *,
        http: int | None = None,
        answer: Mapping[str, Any] | None = None,
        why: str | None = None,
    ) -> Operation:
        """An operation ends, as far as its client can tell."""
        done = replace(operation, type=type_, ended=time.time(), http=http, answer=answer, why=why)
        self._lines.write({"type": type_, "n": done.n, "ended": done.ended, "http": http, "answer": answer, "why": why})
        self.operations.append(done)
        return done

    def note(self, what: str, target: str) -> None:
        """Something is done to the system."""
        self._lines.write({"type": "nemesis", "at": time.time(), "what": what, "target": target})

    def read(self) -> History:
        """Everything so far; what has no end yet is info."""
        return read_history(self.path)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def read_history(path: Path) -> History:
    """A history from its file."""
    open_: dict[int, Operation] = {}
    nemeses: list[Nemesis] = []
    for line in read_lines(path):
        kind = line.pop("type")
        if kind == "nemesis":
            nemeses.append(Nemesis(**line))
        elif kind == "invoke":
            open_[line["n"]] = Operation(**line)
        else:
            open_[line["n"]] = replace(open_[line["n"]], type=kind, **{name: value for name, value in line.items() if name != "n"})
    return History(operations=tuple(open_.values()), nemeses=tuple(nemeses))
