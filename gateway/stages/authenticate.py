"""Who is asking: a bearer credential to a caller."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from gateway.domain.keys import is_key
from gateway.domain.principal import Caller

KNOWN_S = 0.5
"""How long a key that was found in the ledger is believed without another look: a revoked one is refused by then."""
MAX_KNOWN = 10_000
_FIRST_LOOKS = 2
"""How many unknown keys are looked up at once: whoever tries keys out must not take the ledger's connections from calls."""

FindKey = Callable[[bytes], Awaitable[Caller | None]]
"""Who asks with the key of a digest (SHA-256); None where it opens nothing. May raise LedgerUnavailable."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A credential of the operator's settings that opens the gateway, known here only by its digest."""

    sha256: bytes
    caller: Caller

    @classmethod
    def of(cls, secret: str, caller: Caller) -> "Key":
        """The key for a secret, which is forgotten at once."""
        return cls(sha256=hashlib.sha256(secret.encode()).digest(), caller=caller)


@dataclass
class _Known:
    caller: Caller
    looked_at: float


class Authenticate:
    """Finds the caller of a request by its key. Runs once a request, before its calls are looked at."""

    name = "authenticate"

    def __init__(self, keys: Iterable[Key], find_key: FindKey, clock: Callable[[], float] = time.monotonic) -> None:
        # Looked up by digest: the time it takes says nothing about the keys that exist.
        self._callers = {key.sha256: key.caller for key in keys}
        self._find_key = find_key
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._first_looks = asyncio.Semaphore(_FIRST_LOOKS)

    async def __call__(self, authorization: str | None) -> Caller | None:
        """The caller of an ``Authorization: Bearer …`` header, or None where it opens nothing. Raises LedgerUnavailable."""
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            return None
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        return self._callers.get(digest) or (await self._find(digest) if is_key(secret) else None)

    async def _find(self, digest: bytes) -> Caller | None:
        known = self._known.get(digest)
        if known is None:
            async with self._first_looks:
                return await self._look(digest)
        if self._clock() - known.looked_at < KNOWN_S:
            return known.caller
        known.looked_at = self._clock()  # so that of many requests at once one looks
        try:
            return await self._look(digest)
        except BaseException:
            self._known.pop(digest, None)
            raise

    async def _look(self, digest: bytes) -> Caller | None:
        looked_at = self._clock()
        caller = await self._find_key(digest)
        if caller is None:
            self._known.pop(digest, None)
        else:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[digest] = _Known(caller, looked_at)
        return caller
