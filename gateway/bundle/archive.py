"""The files of a revision as one value that the ledger keeps, and back."""

import base64
import json
import zlib
from collections.abc import Mapping


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """All files as zlib-compressed JSON of base64, in the order of their paths."""
    document = {path: base64.b64encode(files[path]).decode() for path in sorted(files)}
    return zlib.compress(json.dumps(document).encode())


def unpack_files(packed: bytes) -> dict[str, bytes]:
    """The files of `pack_files`."""
    document: dict[str, str] = json.loads(zlib.decompress(packed))
    return {path: base64.b64decode(text) for path, text in document.items()}
