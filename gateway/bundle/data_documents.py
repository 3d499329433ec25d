"""Data documents in OPA's layout: ``data/<folder>/data.json`` or ``data.yaml`` stands at ``data.<folder>``."""

import math
import re
from collections.abc import Mapping
from typing import Any, cast

import jiter

from gateway.bundle.sources import locate
from gateway.bundle.strict_yaml import MAX_DEPTH, UnreadableError, decode_text, read_yaml
from gateway.domain.canonical import MAX_SAFE_INTEGER
from gateway.domain.findings import Finding

_PLACE = re.compile(r" at line (\d+) column (\d+)$")


def read_data(files: Mapping[str, bytes]) -> tuple[dict[str, Any], list[Finding]]:
    """Merge the files below ``data/`` into one document; two files that define the same path are a finding."""
    root: dict[str, Any] = {}
    findings: list[Finding] = []
    for path in sorted(path for path in files if path.startswith("data/")):
        try:
            document = _read_json(files[path]) if path.endswith(".json") else read_yaml(files[path]).value
        except UnreadableError as error:
            findings.append(locate(path, error))
            continue
        folders = path.split("/")[1:-1]
        for folder in reversed(folders):
            document = {folder: document}
        if not isinstance(document, dict) or (folders and not _is_object_at(cast("dict[str, Any]", document), folders)):
            findings.append(
                _finding(path, "data-not-object", "a data document must be an object", 'Put the value under a name: {"name": …}.')
            )
            continue
        conflict = _merge(root, cast("dict[str, Any]", document), "data")
        if conflict:
            findings.append(_finding(path, "data-conflict", f"`{conflict}` is defined by another data file too", "Define it in one file."))
    return root, findings


def _is_object_at(document: dict[str, Any], folders: list[str]) -> bool:
    value: Any = document
    for folder in folders:
        value = value[folder]
    return isinstance(value, dict)


def _merge(target: dict[str, Any], source: dict[str, Any], path: str) -> str | None:
    """Merge objects; answers the first path that both define as something else."""
    for key, value in source.items():
        if key not in target:
            target[key] = value
        elif isinstance(target[key], dict) and isinstance(value, dict):
            conflict = _merge(cast("dict[str, Any]", target[key]), cast("dict[str, Any]", value), f"{path}.{key}")
            if conflict:
                return conflict
        else:
            return f"{path}.{key}"
    return None


def _read_json(data: bytes) -> Any:
    text = decode_text(data)
    try:
        value: Any = jiter.from_json(text.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        sentence = str(error)
        match = _PLACE.search(sentence)
        place = (int(match[1]), int(match[2])) if match else (1, 1)
        raise UnreadableError(
            place,
            "json-syntax",
            f"not strict JSON: {_PLACE.sub('', sentence)}",
            "Correct the JSON; every key stands once, numbers are finite.",
        ) from None
    _check_json(value, 0)
    return value


def _check_json(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnreadableError((1, 1), "yaml-too-deep", f"nested deeper than {MAX_DEPTH} levels", "Flatten the document.")
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            _check_json(key, depth)
            _check_json(item, depth + 1)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _check_json(item, depth + 1)
    elif isinstance(value, str) and "\0" in value:
        raise UnreadableError((1, 1), "yaml-text", "text contains U+0000", "Remove the escape.")
    elif (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER):
        raise UnreadableError(
            (1, 1),
            "yaml-number",
            "a number that JSON readers do not agree on (infinite, or beyond 2^53-1)",
            "Quote it to make it text, or use a smaller number.",
        )


def _finding(file: str, code: str, message: str, mend: str) -> Finding:
    return Finding(file=file, line=0, column=0, code=code, message=message, mend=mend)
