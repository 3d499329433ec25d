"""Strict YAML: what two readers could understand differently is refused, with its place."""

import pytest

from gateway.bundle.strict_yaml import MAX_DEPTH, UnreadableError, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("NO", "NO"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("12:30:00", "12:30:00"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"),
        ("010", 10),
        ("0o10", 8),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("'1'", "1"),
        ('"true"', "true"),
        ("-7", -7),
        ("=", "="),
        ("{on: 1}", {"on": 1}),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object):
    read = read_yaml(text.encode()).value

    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: 1\nb: 2\na: 3", "yaml-duplicate-key", (3, 1)),
        ("a: {x: 1, x: 2}", "yaml-duplicate-key", (1, 11)),
        ("a: &x 1", "yaml-alias", (1, 4)),
        ("a: *x", "yaml-alias", (1, 4)),
        ("<<: {a: 1}", "yaml-alias", (1, 1)),
        ("a: !!str 1", "yaml-tag", (1, 4)),
        ("a: !!python/object/apply:os.system [ls]", "yaml-tag", (1, 4)),
        ("%YAML 1.1\n---\na: 1", "yaml-directive", (1, 1)),
        ("a: 1\n---\nb: 2", "yaml-many-documents", (2, 1)),
        ("? [a]\n: 1", "yaml-key", (1, 3)),
        ("a: .nan", "yaml-number", (1, 4)),
        ("a: 1e999", "yaml-number", (1, 4)),
        ("a: 9007199254740992", "yaml-number", (1, 4)),
        ('a: "\\0"', "yaml-text", (1, 4)),
        ("a: [1", "yaml-syntax", (2, 1)),
        ("[" * (MAX_DEPTH + 1), "yaml-too-deep", (1, MAX_DEPTH + 1)),
    ],
)
def test_what_is_not_strict_is_refused_with_its_place(text: str, code: str, place: tuple[int, int]):
    with pytest.raises(UnreadableError) as caught:
        read_yaml(text.encode())

    assert (caught.value.code, caught.value.place) == (code, place)


def test_every_value_has_its_place():
    places = read_yaml(b"a:\n  - b: 1\n  - c/d: {e: 2}\n").places

    assert places == {
        "": (1, 1),
        "/a": (1, 1),
        "/a/0": (2, 5),
        "/a/0/b": (2, 5),
        "/a/1": (3, 5),
        "/a/1/c~1d": (3, 5),
        "/a/1/c~1d/e": (3, 11),
    }


def test_bytes_that_are_not_utf_8_are_refused_with_their_line():
    with pytest.raises(UnreadableError) as caught:
        read_yaml(b"a: 1\nb: \xff")

    assert (caught.value.code, caught.value.place) == ("file-not-utf8", (2, 1))
