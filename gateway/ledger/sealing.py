"""How the replay store keeps what is secret: sealed JSON values inside documents that stay readable without a key."""

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.evidence.vault import DataKey


def seal_json(key: DataKey, value: Any, belongs: bytes) -> dict[str, str]:
    """A JSON value as it stands in the replay store: which key opens it, and the sealed bytes."""
    return {"key": key.key_id.hex(), "box": base64.b64encode(key.seal(orjson.dumps(value), belongs)).decode()}


def seal_result(key: DataKey | None, result: Mapping[str, Any]) -> bytes:
    """A result as the replay store keeps it: its data sealed, the rest as it is."""
    if key is None or result.get("data") is None:
        return orjson.dumps(result)
    return orjson.dumps(dict(result) | {"data": None, "data_omitted": "expired", "sealed": seal_json(key, result["data"], b"result")})
