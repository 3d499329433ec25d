"""Following a bundle's folder while somebody edits it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from gateway.bundle.folder import compute_revision, read_folder

EVERY_S = 0.25


async def changes(folder: Path, revision: str) -> AsyncGenerator[None]:
    """Yields whenever the content of the folder is another one than before (`revision` at first), four times a second at most.

    Content counts, not times: a file that is saved unchanged, or touched, is no change.
    """
    seen: tuple[str, object] = (revision, ())
    while True:
        await asyncio.sleep(EVERY_S)
        now = await asyncio.to_thread(_content, folder)
        if now != seen:
            seen = now
            yield


def _content(folder: Path) -> tuple[str, object]:
    snapshot = read_folder(folder)
    files: Mapping[str, bytes] = snapshot.files
    return compute_revision(files), snapshot.findings
