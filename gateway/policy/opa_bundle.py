"""A policy set as a standard OPA bundle: a gzipped tar of its modules, its data and a manifest, signed where that is configured.

Format: OPA's management API "Bundles"; a signature covers every file of the bundle.
"""

import asyncio
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jwt

from gateway.domain.catalogue import PolicySet
from gateway.policy.modules import AUTHORS_ROOT

CONTENT_TYPE = "application/vnd.openpolicyagent.bundles"
"""Tells OPA that this server holds a request open until there is something new (long polling)."""
MANIFEST = ".manifest"
SIGNATURES = ".signatures.json"
_SHELF = 4
"""Revisions kept packed, the newest ones."""

Algorithm = Literal["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "HS256", "HS384", "HS512"]
"""What OPA verifies. HS…: both sides hold one secret; the others: OPA needs only the public key."""


@dataclass(frozen=True, kw_only=True)
class OpaBundle:
    """What the bundle route answers."""

    content: bytes
    etag: str
    """SHA-256 of the content, hex: a new release of the gateway may bring a new library under an old revision."""


class BundleSigner:
    """Signs bundles with the operator's key. Raises ValueError where the key does not fit the algorithm."""

    def __init__(self, key: str, *, algorithm: Algorithm, key_id: str) -> None:
        self._key = key
        self._algorithm: Algorithm = algorithm
        self._key_id = key_id
        self.sign({})  # proves the key while the gateway starts

    def sign(self, files: Mapping[str, bytes]) -> bytes:
        """The content of ``.signatures.json`` over all files of a bundle."""
        # OPA digests JSON by its values, written as `_json` writes them, and everything else by its bytes.
        listed = [{"name": name, "hash": hashlib.sha256(content).hexdigest(), "algorithm": "SHA-256"} for name, content in files.items()]
        claims = {"files": listed, "keyid": self._key_id}
        try:
            token = jwt.encode(claims, self._key, algorithm=self._algorithm, headers={"kid": self._key_id})
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            msg = f"the key does not fit {self._algorithm}: {error}"
            raise ValueError(msg) from None
        return json.dumps({"signatures": [token]}).encode()


class BundleShelf:
    """Packs each revision once, and signs it where there is a signer: then none leaves unsigned."""

    def __init__(self, signer: BundleSigner | None = None) -> None:
        self._signer = signer
        self._packed: dict[str, OpaBundle] = {}

    async def of(self, policies: PolicySet) -> OpaBundle:
        """The bundle of a revision."""
        if (packed := self._packed.get(policies.revision)) is None:
            packed = await asyncio.to_thread(pack_bundle, policies, self._signer)  # compresses up to 16 MiB
            # Whoever was faster counts: signatures may differ, and one revision is to have one entity tag.
            packed = self._packed.setdefault(policies.revision, packed)
            while len(self._packed) > _SHELF:
                del self._packed[next(iter(self._packed))]
        return packed


def pack_bundle(policies: PolicySet, signer: BundleSigner | None = None) -> OpaBundle:
    """The bundle of a revision; equal revisions give equal bytes, except for signatures that are random by their nature."""
    roots = sorted({"gateway", AUTHORS_ROOT, *policies.data})
    manifest = {"revision": policies.revision, "roots": roots, "rego_version": 1}
    files = {name: source.encode() for name, source in policies.modules.items()}
    files |= {"data.json": _json(policies.data), MANIFEST: _json(manifest)}
    if signer is not None:
        files[SIGNATURES] = signer.sign(files)
    content = _archive(files)
    return OpaBundle(content=content, etag=hashlib.sha256(content).hexdigest())


def _json(value: Any) -> bytes:
    """JSON with sorted keys, without spaces, and with the two line separators escaped: the form that OPA digests."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()


def _archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()
