"""Where checkpoints are published: outside the database, so that whoever owns the database cannot take them back."""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from gateway.evidence.signing import PlaceUnavailable

PATIENCE_S = 1.5
"""What a place may take; the signer waits inside a transaction of at most two seconds."""
_TAIL_BYTES = 8192


class FolderPlace:
    """A folder with one append-only file a log, JSON lines ``{at, size, note}``; may be shared by a fleet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, origin: str) -> Path:
        """The file of a log."""
        return self._folder / f"{quote(origin, safe='')}.ndjson"

    async def last(self, origin: str) -> str | None:
        """The last note of a log; None before its first. Raises PlaceUnavailable."""
        return await _patiently(lambda: _last_note(self.path_of(origin)))

    async def all(self, origin: str) -> list[str]:
        """All notes of a log, in order. Raises PlaceUnavailable."""
        path = self.path_of(origin)
        try:
            lines = await asyncio.to_thread(path.read_bytes) if path.exists() else b""
        except OSError as error:
            raise PlaceUnavailable(f"{path}: {error.strerror}") from None
        return [note for line in lines.splitlines() if (note := _note_of(line)) is not None]

    async def append(self, origin: str, note: str, *, size: int, after: str | None) -> None:
        """Publish `note`, only if `after` is still the last one. Raises PlaceUnavailable."""
        line = json.dumps({"at": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "size": size, "note": note}) + "\n"
        await _patiently(lambda: self._append(self.path_of(origin), line, after))

    def _append(self, path: Path, line: str, after: str | None) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _last_note(path) != after:
                raise PlaceUnavailable(f"another signer wrote to {path}")
            # A line that a crash has cut stays as it is; the next one begins on its own line.
            file.write((b"" if _ends_well(path) else b"\n") + line.encode())
            file.flush()
            os.fsync(file.fileno())


class WebhookPlace:
    """A service that keeps the notes: GET gives the last one as text (204 before the first), POST takes the next one.

    POST carries JSON ``{origin, size, after, note}``; the service answers 409 where its last note is not `after`.
    """

    def __init__(self, url: str, credential: Callable[[], str] | None) -> None:
        self._url = url
        self._credential = credential

    async def last(self, origin: str) -> str | None:
        """The last note of a log; None before its first. Raises PlaceUnavailable."""
        status, body = await self._ask("GET", params={"origin": origin})
        if status == 204:
            return None
        if status != 200 or not body:
            raise PlaceUnavailable(f"the checkpoint webhook answered {status}")
        return body

    async def append(self, origin: str, note: str, *, size: int, after: str | None) -> None:
        """Publish `note`, only if `after` is still the last one. Raises PlaceUnavailable."""
        status, _ = await self._ask("POST", json={"origin": origin, "size": size, "after": after, "note": note})
        if status not in {200, 201, 204}:
            raise PlaceUnavailable(f"the checkpoint webhook answered {status}")

    async def _ask(self, method: str, **what: Any) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self._credential()}"} if self._credential else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S), headers=headers) as session,
                session.request(method, self._url, allow_redirects=False, **what) as response,
            ):
                return response.status, (await response.content.read(_TAIL_BYTES)).decode()
        except (aiohttp.ClientError, OSError, TimeoutError, UnicodeDecodeError) as error:
            raise PlaceUnavailable(f"the checkpoint webhook does not answer: {type(error).__name__}") from None


async def _patiently(work: Callable[[], Any]) -> Any:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.to_thread(work)
    except (OSError, TimeoutError, ValueError) as error:
        raise PlaceUnavailable(f"the folder of checkpoints cannot be used: {type(error).__name__}: {error}") from None


def _last_note(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return None
    for line in reversed(tail.splitlines(keepends=True)):
        if not line.endswith(b"\n"):
            continue  # cut by a crash: it was never acknowledged
        note = _note_of(line)
        if note is not None:
            return note
    if tail.strip():
        raise PlaceUnavailable(f"{path} ends with what is no note")
    return None


def _note_of(line: bytes) -> str | None:
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    note = found.get("note") if isinstance(found, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return note if isinstance(note, str) else None


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"
