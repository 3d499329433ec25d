"""Every builtin on the allow-list with edge values of every kind: equal in both engines, errors included."""

import itertools
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import orjson

from gateway.domain.catalogue import PolicySet
from gateway.domain.json_values import is_array
from gateway.domain.policy_input import CANARY
from gateway.policy.checks.builtins import ALLOWED
from tests.opa import find_opa
from tests.parity.engines import open_pair

A_BUILTIN = 90
"""Calls of each builtin in each form, at most."""
VALUES: list[Any] = [
    0, 1, -1, 2, 7, 10, 2**53 - 1, -(2**53 - 1), 2**53, 1e300, 1.5, 0.1, -2.5, 0.30000000000000004, "", "a", "abc", "aXb", " a ", "é", "e\u0301", "İ", "ß", "😀x", "a,b",
    "1", "1.0", " 1 ", "1e3", "-7", "0x1", "null", "a\u0000c", "\u2028", "%d", True, False, None, [], [1, 2], [3, 1, 2], [0.1, 0.2, 0.3], ["a", "b"], ["b", "a", "a"], [[1], [2]],
    [None, "a", 1, True, {}, []], ["a", "😀"], [{"a": 1}, {"b": 2}], {}, {"a": 1}, {"a": {"b": 2}}, {"b": [1, 2]}, {"": 0}, {"a": ["b"], "b": []}, "2026-03-01T10:00:00Z",
    "2026-03-01T10:00:00+02:00", "2026-02-30T10:00:00Z", "1h", "1.5h", "1.0.0", "1.0.0-rc1", "10.0.0.0/8", "10.1.2.3", "::1", "::/0", "123e4567-e89b-12d3-a456-426614174000",
    1_772_359_200_000_000_000, [1_772_359_200_000_000_000, "Europe/Paris"], [0, "Nowhere"], ["/a"], ["a/b"], "/",
]  # fmt: skip
COVERED_BY_ROWS = {"regex.match", "sprintf"}
"""Their first argument is a literal."""


def is_kept_away(name: str, values: tuple[Any, ...]) -> bool:
    """Whether ``gateway check`` lets no policy come to this call (tests/parity/rows.py holds it to that)."""
    first = values[0]
    match name:
        case "count":
            return isinstance(first, str)
        case "sum" | "product":
            return isinstance(first, list) and any(isinstance(item, float) for item in first)  # pyright: ignore[reportUnknownVariableType]
        case "indexof":
            return values[1] == ""
        case "substring":
            return not all(isinstance(value, int) for value in values[1:])
        case _:
            return False


def forms() -> dict[str, tuple[str, int]]:
    """Each builtin with its arguments as they are and, where it takes one or two, as sets: form -> (name, which are sets)."""
    named = [(name, mask) for name, arity in ALLOWED.items() if name not in COVERED_BY_ROWS for mask in range(2**arity if arity < 3 else 1)]
    return {f"{name}/{mask}": (name, mask) for name, mask in named}


def module_of(kept: dict[str, tuple[str, int]]) -> str:
    rules = ['package gateway\n\ndecision := {"value": "canary"} if input.tool.name == "canary"']
    for form, (name, mask) in kept.items():
        given = [f"input.args.{letter}" for letter in "abcd"[: ALLOWED[name]]]
        given = [f"{{item | some item in {each}}}" if mask >> place & 1 else each for place, each in enumerate(given)]
        rules.append(f'decision := {{"value": {name}({", ".join(given)})}} if input.tool.name == "{form}"')
    return "\n\n".join(rules) + "\n"


def that_compile(folder: Path) -> dict[str, tuple[str, int]]:
    """The forms that OPA's compiler takes: it knows that a set is no text."""
    kept = forms()
    while True:
        file = folder / "builtins.rego"
        file.write_text(module_of(kept))
        checked = subprocess.run([find_opa(), "check", "-m", "0", "-f", "json", str(file)], check=False, capture_output=True, text=True)
        if checked.returncode == 0:
            return kept
        lines = file.read_text().split("\n")
        for error in json.loads(checked.stderr or checked.stdout)["errors"]:
            row: int = error["location"]["row"]
            named = re.search(r'== "(.*)"$', lines[row - 1])
            assert named is not None, error
            kept.pop(str(named[1]), None)


def questions(kept: dict[str, tuple[str, int]]) -> list[tuple[str, tuple[Any, ...], bytes]]:
    chance = random.Random(5)  # noqa: S311 - the same questions in every run
    collections: list[Any] = list(filter(is_array, VALUES))
    found: list[tuple[str, tuple[Any, ...], bytes]] = []
    base = orjson.loads(CANARY)
    for form, (name, mask) in kept.items():
        pools: list[list[Any]] = [collections if mask >> place & 1 else VALUES for place in range(ALLOWED[name])]
        tuples = list(itertools.product(*pools)) if len(pools) < 3 else [tuple(map(chance.choice, pools)) for _ in range(6 * A_BUILTIN)]
        tuples = [values for values in tuples if not is_kept_away(name, values)]
        for values in chance.sample(tuples, min(len(tuples), A_BUILTIN)):
            args = dict(zip("abcd", values, strict=False))
            found.append((form, values, orjson.dumps(base | {"tool": base["tool"] | {"name": form}, "args": args})))
    return found


async def test_every_builtin_is_equal(tmp_path: Path) -> None:
    kept = that_compile(tmp_path)
    assert {name for name, _ in kept.values()} == ALLOWED.keys() - COVERED_BY_ROWS
    asked = questions(kept)
    async with open_pair() as pair:
        await pair.load(PolicySet(revision="builtins", modules={"gateway.rego": module_of(kept)}, data={}))
        answers = await pair.compare("builtins", [document for _, _, document in asked])
    different = [(form, values, *both) for (form, values, _), both in zip(asked, answers, strict=True) if both[0] != both[1]]
    assert different == []
    assert len(asked) > 4_000
    assert different == []
    assert len(asked) > 4_000
