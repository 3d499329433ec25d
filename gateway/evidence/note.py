"""Signed checkpoints: C2SP signed notes (c2sp.org/signed-note, c2sp.org/tlog-checkpoint) with an Ed25519 key.

A checkpoint's text is three lines: the log's origin, its size, the base64 of its root.
"""

import base64
import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ED25519 = b"\x01"


class NoteRefused(ValueError):
    """A note that is none, or that this key did not sign."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a log said of itself: how long it is and what its root is."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A log's public key, under the name that its signatures carry: the log's origin."""

    name: str
    key: bytes

    @property
    def key_id(self) -> bytes:
        """The four bytes that begin its signatures."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.key).digest()[:4]

    def text(self) -> str:
        """As it is handed out: name, id and key, one line."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(_ED25519 + self.key).decode()}"

    def open(self, note: str) -> Checkpoint:
        """The checkpoint that this key signed. Raises NoteRefused."""
        text, separator, signatures = note.partition("\n\n")
        for line in signatures.splitlines() if separator else ():
            dash, name, written = [*line.split(" ", 2), "", "", ""][:3]
            signature = base64.b64decode(written) if dash == "\u2014" and name == self.name else b""
            if signature[:4] == self.key_id:
                try:
                    Ed25519PublicKey.from_public_bytes(self.key).verify(signature[4:], f"{text}\n".encode())
                except InvalidSignature:
                    break
                return _read_checkpoint(text)
        raise NoteRefused(f"{self.name} did not sign this note")


def origin_of(log_id: str, tenant: str) -> str:
    """What the log of a tenant is called: the installation's id and the tenant's name."""
    return f"tool-gateway/{log_id}/{quote(tenant, safe='')}"


class Signer:
    """Signs checkpoints of logs with one private key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def public_key(self, origin: str) -> PublicKey:
        """The public key of a log."""
        return PublicKey(name=origin, key=self.public)

    def sign(self, checkpoint: Checkpoint) -> str:
        """The note that says `checkpoint`."""
        text = checkpoint.text()
        signature = self.public_key(checkpoint.origin).key_id + self._key.sign(text.encode())
        return f"{text}\n\u2014 {checkpoint.origin} {base64.b64encode(signature).decode()}\n"


def _read_checkpoint(text: str) -> Checkpoint:
    lines = text.split("\n")
    try:
        origin, size, root = lines
        return Checkpoint(origin=origin, size=int(size), root=base64.b64decode(root, validate=True))
    except ValueError:
        raise NoteRefused("a checkpoint has three lines: origin, size, root") from None
