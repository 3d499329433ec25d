"""Whatever stands in a file: the answer is a bundle or findings with places, never an exception."""

import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

import gateway.bundle.load
from gateway.bundle import load_files
from gateway.bundle.strict_yaml import read_yaml
from gateway.domain.findings import Finding
from tests.fakes.small_bundle import FILES

Path = tuple[str | int, ...]
STRANGE: list[Any] = [None, 1, 1.5, "", "x", [], {}, [{}], True]


def paths_in(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    steps: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        steps = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        steps = enumerate(cast("list[Any]", value))
    for step, below in steps:
        yield from paths_in(below, (*path, step))


def replaced(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def find_nothing(*_sources: object, **_names: object) -> list[Finding]:
    return []


@pytest.mark.parametrize("file", sorted(path for path in FILES if path.endswith(".yaml")))
def test_any_value_in_any_place_is_answered_with_findings_or_a_bundle(file: str, monkeypatch: pytest.MonkeyPatch):
    # The Rego does not change here, and its check starts a process.
    monkeypatch.setattr(gateway.bundle.load, "analyse", find_nothing)
    files = {path: text.encode() for path, text in FILES.items()}
    document = read_yaml(files[file]).value

    for path in paths_in(document):
        for value in STRANGE:
            loaded = load_files({**files, file: json.dumps(replaced(document, path, value)).encode()})
            for finding in loaded if isinstance(loaded, list) else loaded.warnings:
                assert finding.message, (path, value)
                assert finding.mend, (path, value)
                assert finding.file in FILES, (path, value)
