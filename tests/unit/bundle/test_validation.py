"""Compiled schemas: sentences that tell a model what to do and never repeat what it wrote."""

import time
from typing import Any

import pytest

from gateway.bundle.validation import FlatStrings, SchemaValidator
from gateway.domain.catalogue import FieldError

SEARCH: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["city"],
    "properties": {
        "city": {"type": "string", "pattern": r"\S", "maxLength": 40},
        "maxNightlyPriceUsd": {"type": "number", "minimum": 0},
        "stars": {"enum": [3, 4, 5]},
        "guests": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "born": {"type": "string", "format": "date"}},
            },
        },
        "kind": {"const": "hotel"},
        "night": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "near": {"$ref": "#/$defs/place"},
    },
    "$defs": {"place": {"type": "object", "additionalProperties": False, "properties": {"lat": {"type": "number"}}}},
}


@pytest.fixture(scope="module")
def search() -> SchemaValidator:
    return SchemaValidator(SEARCH)


@pytest.mark.parametrize(
    ("args", "errors"),
    [
        ({"city": "Paris"}, []),
        ({"city": "Paris", "stars": 4}, []),
        ({"city": "Paris", "stars": 4.0}, []),
        ({}, [("/city", "required")]),
        ({"city": "Paris", "max": 3}, [("/max", "unknown field; allowed: city, guests, kind, maxNightlyPriceUsd, near, night, stars")]),
        ({"city": 7}, [("/city", "must be a string")]),
        ({"city": "  "}, [("/city", r"must match the pattern \S")]),
        ({"city": "P" * 41}, [("/city", "must have at most 40 characters")]),
        ({"city": "Paris", "maxNightlyPriceUsd": -1}, [("/maxNightlyPriceUsd", "must be at least 0")]),
        ({"city": "Paris", "maxNightlyPriceUsd": "250"}, [("/maxNightlyPriceUsd", "must be a number")]),
        ({"city": "Paris", "stars": 6}, [("/stars", "must be one of 3, 4, 5")]),
        ({"city": "Paris", "kind": "x"}, [("/kind", 'must be "hotel"')]),
        ({"city": "Paris", "night": None}, [("/night", "must have one of the allowed forms")]),
        ({"city": "Paris", "near": {"lon": 1}}, [("/near/lon", "unknown field; allowed: lat")]),
        (
            {"city": "Paris", "guests": [{"name": "A"}, {"nam": "B", "born": "yesterday"}]},
            [
                ("/guests/1/born", "must have the format date"),
                ("/guests/1/nam", "unknown field; allowed: born, name"),
                ("/guests/1/name", "required"),
            ],
        ),
        ({"city": "Paris", "guests": [{"name": "A"}] * 3}, [("/guests", "must have at most 2 items")]),
        ([], [("", "must be an object")]),
        (None, [("", "must be an object")]),
    ],
)
def test_every_error_has_a_pointer_and_a_sentence(search: SchemaValidator, args: Any, errors: list[tuple[str, str]]):
    assert sorted((error.path, error.message) for error in search.errors(args)) == errors


SECRET = "tok-FAKE-1"


@pytest.mark.parametrize(
    "args",
    [
        {"city": 1, "maxNightlyPriceUsd": SECRET, "stars": SECRET, "kind": SECRET, "night": [SECRET], "guests": SECRET},
        {"city": SECRET * 10, "near": SECRET},
        {"city": "Paris", "guests": [{"name": {"x": SECRET}, "born": SECRET}]},
        {"city": "Paris", "unknown": SECRET},
        SECRET,
        [SECRET],
    ],
)
def test_no_sentence_contains_a_value(search: SchemaValidator, args: Any):
    errors = search.errors(args)

    assert errors
    assert SECRET not in repr(errors)


def test_a_pattern_that_backtracks_elsewhere_answers_at_once():
    validator = SchemaValidator({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    started = time.perf_counter()

    assert validator.errors({"a": "a" * 28 + "!"}) == (FieldError(path="/a", message="must match the pattern ^(a+)+$"),)
    assert validator.errors({"a": "a" * 100_000 + "!"})
    assert time.perf_counter() - started < 0.5


def test_there_are_at_most_20_errors():
    validator = SchemaValidator({"type": "object", "additionalProperties": False, "properties": {}})

    errors = validator.errors({f"k{n}": n for n in range(100)})
    assert len(errors) == 20
    assert errors[0].message == "unknown field; none is allowed here"


def test_an_invented_key_is_clipped_and_printable():
    validator = SchemaValidator({"type": "object", "additionalProperties": False, "properties": {}})

    paths = [error.path for error in validator.errors({"k" * 100: 1, "a\nb\x1b[31m/~": 1})]
    assert sorted(paths) == ["/a\ufffdb\ufffd[31m~1~0", "/" + "k" * 63 + "…"]


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, object()])
def test_what_is_no_json_value_does_not_fit(search: SchemaValidator, value: object):
    assert search.errors(value)


@pytest.mark.parametrize(
    ("context", "errors"),
    [
        ({}, []),
        ({"requestVersion": "1"}, []),
        ({"version": 1}, [("/version", "must be a string")]),
        ({"nested": {"a": "b"}}, [("/nested", "must be a string")]),
        ({"long": "x" * 1025}, [("/long", "must have at most 1024 characters")]),
        ({f"k{n}": "" for n in range(33)}, [("", "must have at most 32 fields")]),
        ({"k" * 65: "x"}, [("/" + "k" * 63 + "…", "the name must have at most 64 characters")]),
        (["a"], [("", "must be an object")]),
    ],
)
def test_a_context_without_schema_is_a_flat_object_of_strings(context: Any, errors: list[tuple[str, str]]):
    assert [(error.path, error.message) for error in FlatStrings().errors(context)] == errors
