"""Data keys: every subject has its own, wrapped by the master key. Whoever destroys a data key destroys what it sealed.

AES-256-GCM throughout; what is sealed is nonce (12 bytes) and ciphertext with its tag, bound to what it belongs to.
"""

import hashlib
import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class SealBroken(Exception):
    """What was sealed does not open: another key, or it was changed."""


@dataclass(frozen=True)
class DataKey:
    """A key in use. `key_id` is the SHA-256 of its wrapped form, so that a changed key table shows."""

    key_id: bytes
    _cipher: AESGCM = field(repr=False)

    def seal(self, plain: bytes, belongs: bytes) -> bytes:
        """`plain`, sealed for what it belongs to."""
        return _seal(self._cipher, plain, belongs)

    def open(self, sealed: bytes, belongs: bytes) -> bytes:
        """What was sealed. Raises SealBroken."""
        return _open(self._cipher, sealed, belongs)


class Vault:
    """Wraps data keys under the master key."""

    def __init__(self, master_key: bytes) -> None:
        self._master = AESGCM(master_key)
        self.master_id = hashlib.sha256(b"agent-tool-gateway master key\0" + master_key).digest()
        """Tells master keys apart without giving them away."""

    def make_key(self, owner: bytes) -> tuple[DataKey, bytes]:
        """A new data key and its wrapped form."""
        key = secrets.token_bytes(32)
        wrapped = _seal(self._master, key, owner)
        return DataKey(hashlib.sha256(wrapped).digest(), AESGCM(key)), wrapped

    def unwrap(self, wrapped: bytes, owner: bytes) -> DataKey:
        """A data key from its wrapped form. Raises SealBroken."""
        return DataKey(hashlib.sha256(wrapped).digest(), AESGCM(_open(self._master, wrapped, owner)))


def _seal(cipher: AESGCM, plain: bytes, belongs: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plain, belongs)


def _open(cipher: AESGCM, sealed: bytes, belongs: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], belongs)
    except (InvalidTag, ValueError):
        raise SealBroken from None
