"""API keys that the gateway makes: how they look, and what one opens."""

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gateway.domain.principal import Caller, Role

_ALPHABET = string.digits + string.ascii_letters
_SECRET_LENGTH = 40
"""Characters of the secret part: 238 bits, so that a plain hash of a key gives nothing away."""
_CHECK_LENGTH = 6
_FORM = re.compile(rf"gw_[a-z]+_[0-9A-Za-z]{{{_SECRET_LENGTH + _CHECK_LENGTH}}}")
_HINT_LENGTH = 4
MAX_LIVE_KEYS = 2
"""Live keys of one rotation: the one in use and its successor."""


@dataclass(frozen=True, kw_only=True)
class KeyGrant:
    """What a key opens, and as whom. An agent's key names the agent, an approver's the person."""

    tenant: str
    roles: frozenset[Role]
    agent: str | None = None
    person: str | None = None
    label: str | None = None
    """What people call it; the caller's name where it is neither an agent's nor a person's."""

    @property
    def caller(self) -> Caller:
        """Who asks with such a key."""
        return Caller(tenant=self.tenant, name=self.agent or self.person or self.label or "", roles=self.roles)

    def objection(self) -> str | None:
        """Why there can be no such key, as a sentence; None where there can."""
        if not self.roles:
            return "a key has at least one role"
        if (Role.AGENT in self.roles) != (self.agent is not None):
            return "a key names an agent exactly where it has the role agent"
        if Role.AGENT in self.roles and Role.APPROVER in self.roles:
            return "an agent never approves"
        if Role.APPROVER in self.roles and self.person is None:
            return "a key with the role approver names its person"
        if not (self.agent or self.person or self.label):
            return "a key has an agent, a person or a label"
        return None


@dataclass(frozen=True, kw_only=True)
class StoredKey:
    """A key as the ledger has it: never the key itself."""

    key_id: UUID
    hint: str
    """Its beginning, by which people tell keys apart."""
    roles: list[str]
    agent: str | None
    person: str | None
    label: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_by: str | None
    revoked_at: datetime | None
    is_live: bool


def make_key(roles: frozenset[Role]) -> str:
    """A new key, ``gw_<role>_<secret><checksum>``: letters, digits and ``_`` only, so that one click selects it whole."""
    body = f"gw_{min(roles)}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    return body + _checksum(body)


def is_key(text: str) -> bool:
    """Whether a text has the form and the checksum of a key: typing mistakes and other secrets are no question to the ledger."""
    return _FORM.fullmatch(text) is not None and text[-_CHECK_LENGTH:] == _checksum(text[:-_CHECK_LENGTH])


def digest_of(key: str) -> bytes:
    """What is stored of a key: its SHA-256 (32 bytes)."""
    return hashlib.sha256(key.encode()).digest()


def hint_of(key: str) -> str:
    """The beginning of a key, up to a few characters of its secret."""
    return key[: -(_SECRET_LENGTH + _CHECK_LENGTH - _HINT_LENGTH)]


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
