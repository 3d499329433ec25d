"""Who is asking: a bearer credential to a caller."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.domain.principal import Caller


@dataclass(frozen=True, kw_only=True)
class Key:
    """A credential that opens the gateway, known here only by its digest."""

    sha256: bytes
    caller: Caller

    @classmethod
    def of(cls, secret: str, caller: Caller) -> "Key":
        """The key for a secret, which is forgotten at once."""
        return cls(sha256=hashlib.sha256(secret.encode()).digest(), caller=caller)


class Authenticate:
    """Finds the caller of a request by its key. Runs once a request, before its calls are looked at."""

    name = "authenticate"

    def __init__(self, keys: Iterable[Key]) -> None:
        # Looked up by digest: the time it takes says nothing about the keys that exist.
        self._callers = {key.sha256: key.caller for key in keys}

    def __call__(self, authorization: str | None) -> Caller | None:
        """The caller of an ``Authorization: Bearer …`` header, or None where it opens nothing."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            return None
        return self._callers.get(hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest())
