"""Secret keys of 32 bytes in files: read, or made once, closed to everybody but their owner."""

import base64
import os
import secrets
from contextlib import suppress
from pathlib import Path

KEY_BYTES = 32


class KeyRefused(Exception):
    """A key that cannot be used; the text says which file and how to mend it."""


def read_key(text: str, where: str) -> bytes:
    """A key as it is written: base64 of 32 bytes. Raises KeyRefused."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyRefused(f"{where} must hold the base64 of {KEY_BYTES} random bytes (openssl rand -base64 {KEY_BYTES})")
    return key


def read_or_make_key(path: Path) -> bytes:
    """The key in `path`, made on first use. Raises KeyRefused where others may read it."""
    if not path.exists():
        _make_key(path)
    if path.stat().st_mode & 0o077:
        raise KeyRefused(f"{path} is open to others; close it: chmod 600 {path}")
    return read_key(path.read_text(), str(path))


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Whoever links first made the key; workers that start together all use that one.
    with suppress(FileExistsError):
        path.hardlink_to(draft)
    draft.unlink()
