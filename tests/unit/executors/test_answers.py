import gzip
import json
import math
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.executors.answers import MAX_DEPTH, Cleaned, clean_value, read_answer

INVALID = Cleaned(unusable="invalid")
TOO_LARGE = Cleaned(unusable="too_large")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", None),
        (b" \r\n", None),
        (b"null", None),
        (b'{"a": [1, 2.5, true, "x"]}', {"a": [1, 2.5, True, "x"]}),
        (b'{"id": "m1", "trace": "x\\u0000y", "score": NaN, "s": "\\udc97"}', {"id": "m1", "trace": "x\ufffdy", "score": None, "s": "\ufffd"}),
        (b"[Infinity, -Infinity, 1e400, -1e400]", [None] * 4),
        (b'{"a\\u0000b": {"\\ud800": 1}}', {"a\ufffdb": {"\ufffd": 1}}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"raw \x00 and \n"', "raw \ufffd and \n"),
        (b"\xef\xbb\xbf[1]", [1]),
        (b'"caf\xe9"', "caf\ufffd"),
        (b"9223372036854775807", 2**63 - 1),
        (b"18446744073709551616", 1.8446744073709552e19),
        (b"[NaN, 18446744073709551616]", [None, 1.8446744073709552e19]),
        (b"[" + b"9" * 5000 + b"]", [None]),
    ],
)  # fmt: skip
def test_reads_what_real_services_send(body: bytes, value: Any):
    assert read_answer(body) == Cleaned(value=value)


@pytest.mark.parametrize(
    "body", [b"<html>", b"{", b"[1,]", b"{'a': 1}", b"1 2", b"tru", gzip.compress(b"{}"), b"[" * 100_000, b"[" * 2000 + b"]" * 2000]
)
def test_what_is_not_json_is_invalid(body: bytes):
    assert read_answer(body) == INVALID


def test_depth_is_bounded():
    assert read_answer(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).unusable is None
    assert read_answer(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)) == INVALID
    assert read_answer(b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)) == INVALID


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


def test_cleans_what_python_tools_return():
    value = {"t": (1, "a\0"), "nan": math.nan, "big": 2**80, "huge": 10**400, "enums": [Colour.RED, Number.ONE], "s": "\ud800"}
    cleaned = clean_value(value, 1000).value
    assert cleaned == {"t": [1, "a\ufffd"], "nan": None, "big": 2.0**80, "huge": None, "enums": ["red", 1], "s": "\ufffd"}
    assert [type(item) for item in cleaned["enums"]] == [str, int]


@pytest.mark.parametrize("value", [object(), {1: "a"}, b"bytes", {1, 2}, Decimal(1), [lambda: None], 1j])
def test_what_json_has_no_word_for_is_invalid(value: object):
    assert clean_value(value, 1000) == INVALID


def test_a_python_result_is_a_copy():
    original = {"list": [1]}
    cleaned = clean_value(original, 1000).value
    original["list"].append(2)
    assert cleaned == {"list": [1]}


def test_size_counts_as_json_text():
    assert clean_value("a" * 98, 100) == Cleaned(value="a" * 98)
    assert clean_value("a" * 99, 100) == TOO_LARGE
    assert clean_value("é" * 50, 100) == TOO_LARGE


def test_a_graph_that_stands_for_a_huge_document_is_cut_off_early():
    layer: list[Any] = []
    for _ in range(60):
        layer = [layer, layer]
    assert clean_value(layer, 10_000) == TOO_LARGE


def test_a_cycle_is_invalid_or_too_large():
    cycle: list[Any] = []
    cycle.append(cycle)
    assert clean_value(cycle, 10_000) == INVALID


any_text = st.text(st.characters(exclude_categories=[]))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=20,
)


def is_storable(value: Any) -> bool:
    """Whether PostgreSQL takes it as jsonb and as text, and our own writer writes it."""
    text = orjson.dumps(value).decode()
    if isinstance(value, str):
        return "\0" not in value and value.encode("utf-8", "replace").decode() == value and "\\u0000" not in text
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(is_storable(part) for entry in cast("dict[str, Any]", value).items() for part in entry)
    if isinstance(value, list):
        return all(map(is_storable, cast("list[Any]", value)))
    return True


@given(any_json)
def test_no_accepted_answer_makes_its_record_unwritable(value: Any):
    # json.dumps writes NaN, Infinity, lone surrogates and NUL escapes, as careless services do.
    for cleaned in (read_answer(json.dumps(value).encode()), clean_value(value, 10**6)):
        assert cleaned.unusable is None
        assert is_storable(cleaned.value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes):
    cleaned = read_answer(body)
    assert cleaned.unusable == "invalid" or is_storable(cleaned.value)


@given(any_json)
def test_cleaning_twice_changes_nothing(value: Any):
    once = clean_value(value, 10**6)
    assert clean_value(once.value, 10**6) == once
