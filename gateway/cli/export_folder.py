"""The folder of an export while it is being written, and after: it can be left at any moment and gone on with."""

import csv
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
STATE = "export.state.json"
_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FileForm:
    """How a format's file is called, and where a line of it says its position."""

    file: str
    position: Callable[[bytes], int]
    has_header: bool = False


def _of_json(*path: str) -> Callable[[bytes], int]:
    def read(line: bytes) -> int:
        value = json.loads(line)
        for name in path:
            value = value[name]
        return int(value)

    return read


FORMS: Mapping[str, FileForm] = {
    "ndjson": FileForm(file="records.ndjson", position=_of_json("position")),
    "csv": FileForm(file="records.csv", position=lambda line: int(next(csv.reader([line.decode()]))[1]), has_header=True),
    "opa": FileForm(file="decisions.opa.ndjson", position=_of_json("custom", "position")),
    "otel": FileForm(file="records.otel.ndjson", position=_of_json("attributes", "gateway.record.position")),
}


@dataclass(kw_only=True)
class State:
    """What was asked for, and how much of it stands in the file for certain."""

    asked: dict[str, Any]
    """Query, window and format: an export goes on only with the same."""
    from_position: int = 0
    to_position: int | None = None
    next_position: int = 0
    bytes: int = 0
    count: int = 0
    first: int | None = None
    last: int | None = None
    export_ids: list[str] = field(default_factory=list[str])


class ExportFolder:
    """One export on disk. Lines are taken whole; the state tells of no line that is not."""

    def __init__(self, path: Path, state: State) -> None:
        self._path = path
        self.state = state
        self._form = FORMS[state.asked["format"]]
        self._hash = hashlib.sha256()
        if not self._part.exists() and (path / self._form.file).exists():
            (path / self._form.file).replace(self._part)  # it was about to be finished
        self._file = self._part.open("r+b" if self._part.exists() else "w+b")
        if self._part.stat().st_size < state.bytes:
            raise ValueError(f"{self._part} has become shorter")
        # Whatever stands behind what is certain was being written when somebody pulled the plug.
        self._file.truncate(state.bytes)
        while block := self._file.read(_BLOCK):
            self._hash.update(block)
        self._rest = b""

    @property
    def _part(self) -> Path:
        return self._path / (self._form.file + ".part")

    def begin_again(self) -> None:
        """A new answer begins: what the last one left of a line does not count."""
        self._rest = b""

    def take(self, chunk: bytes) -> int | None:
        """Write what is whole; the last position in it, None where it has none."""
        whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if not newline:
            return None
        lines = whole + newline
        self._file.write(lines)
        self._hash.update(lines)
        state, count = self.state, lines.count(b"\n")
        is_header = self._form.has_header and state.bytes == 0
        state.bytes += len(lines)
        if is_header:
            lines, count = lines[lines.index(b"\n") + 1 :], count - 1
        if not count:
            return None
        state.count += count
        if state.first is None:
            state.first = self._form.position(lines[: lines.index(b"\n")])
        state.last = self._form.position(lines[lines.rstrip(b"\n").rfind(b"\n") + 1 :].strip())
        state.next_position = state.last + 1
        return state.last

    def save(self) -> None:
        """Make certain what was taken so far."""
        self._file.flush()
        os.fsync(self._file.fileno())
        _write(self._path / STATE, asdict(self.state))

    def finish(self, more: Mapping[str, Any]) -> Path:
        """Name the file by its final name and write the manifest, the last of all; answers the manifest."""
        if self._rest:
            raise ValueError("the answer ends within a line")
        self.save()
        self._file.close()
        self._part.replace(self._path / self._form.file)
        state = self.state
        manifest = {
            **state.asked,
            "file": self._form.file,
            "count": state.count,
            "first_position": state.first,
            "last_position": state.last,
            "from_position": state.from_position,
            "to_position": state.to_position,
            "bytes": state.bytes,
            "sha256": self._hash.hexdigest(),
            "export_ids": state.export_ids,
            "completed_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            **more,
        }
        _write(self._path / MANIFEST, manifest)
        (self._path / STATE).unlink()
        return self._path / MANIFEST

    def close(self) -> None:
        """Leave the export as it is."""
        self._file.close()


def read_state(path: Path) -> State | None:
    """The state of an export that was begun in `path`; None where there is none."""
    file = path / STATE
    return State(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _write(file: Path, document: Mapping[str, Any]) -> None:
    # Replaced as a whole: who reads it sees the old or the new one.
    new = file.with_name(file.name + ".new")
    with new.open("w", encoding="utf-8") as out:
        out.write(json.dumps(document, indent=2) + "\n")
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
