import contextlib
import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.json_reader import read_anything
from gateway.api.strict_json import MAX_DEFECTS, MAX_DEPTH, MAX_KEYS, MAX_VALUES, Document, NotJson, defects_in, read_json
from gateway.domain.catalogue import FieldError

LIMIT = 256 * 1024
# No surrogates: Python's json would write them as lone escapes.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


def refuse_constant(name: str) -> object:
    raise ValueError(name)


def unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate")
    return found


def stdlib_accepts(body: bytes) -> bool:
    try:
        json.loads(body.decode(), parse_constant=refuse_constant, object_pairs_hook=unique_pairs)
    except ValueError:
        return False
    return True


def error(path: str, message: str) -> FieldError:
    return FieldError(path=path, message=message)


@given(JSON_VALUES, st.booleans())
def test_what_json_writes_is_read_unchanged(value: object, is_ascii: bool):  # noqa: FBT001 - hypothesis passes by position
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert read_json(body) == Document(value=value)


@given(JSON_VALUES)
def test_both_readers_agree_on_every_document(value: object):
    body = json.dumps(value, indent=1).encode()
    assert read_anything(body) == read_json(body)


@given(JSON_VALUES, st.data())
def test_mutated_bodies_are_judged_as_the_standard_library_judges_them(value: object, data: st.DataObject):
    body = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body)))
        piece = data.draw(
            st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b"0", b"-", b".", b"e", b":", b" ", b"\xff", b"NaN", b"\x00"])
        )
        body[place : place + data.draw(st.integers(0, 2))] = piece
    mutated = bytes(body)
    for reader in (read_json, read_anything):
        try:
            reader(mutated)
        except NotJson:
            assert not stdlib_accepts(mutated)
        else:
            assert stdlib_accepts(mutated)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the text is empty"),
        (b'{"limit": NaN}', "a value expected at line 1, column 11"),
        (b"[Infinity]", "a value or ] expected at line 1, column 2"),
        (b"[-Infinity]", "a value or ] expected at line 1, column 2"),
        (b'{"a": 1, "a": 2}', "duplicate key at line 1, column 10"),
        (b'{"amount_minor": 5,\n "amount\\u005fminor": 6}', "duplicate key at line 2, column 2"),
        (b'[{"x": {"a": 1, "\\u0061": 2}}]', "duplicate key at line 1, column 17"),
        (b"{} {}", "text after the end of the document at line 1, column 4"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        (b"\xef\xbb\xbf{}", "a byte order mark at byte 0, where JSON begins without one"),
        (b"[1,]", "a value expected at line 1, column 4"),
        (b"[1", "the text ends where a comma or an end belongs"),
        (b'{"a" 1}', "a colon expected at line 1, column 6"),
        (b"{1: 2}", "a key or } expected at line 1, column 2"),
        (b"[}", "a value or ] expected at line 1, column 2"),
        (b"01", "text after the end of the document at line 1, column 2"),
        (b'"abc', "text without an end, with a bare control character or with an unknown escape at line 1, column 1"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(body: bytes, sentence: str):
    with pytest.raises(NotJson) as caught:
        read_json(body)
    assert str(caught.value) == sentence


def test_a_refusal_repeats_nothing_of_the_body():
    with pytest.raises(NotJson) as caught:
        read_json(b'{"FAKE-1": 1, "FAKE-1": "FAKE-2"}')
    assert "FAKE" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b'{"limit": 1e400}', Document(value={"limit": 0}, defects=(error("/limit", "number out of range"),))),
        (b'[-1E+999, "e400", 1e100]', Document(value=[0, "e400", 1e100], defects=(error("/0", "number out of range"),))),
        (b'{"n": ' + b"9" * 5000 + b"}", Document(value={"n": 0}, defects=(error("/n", "number out of range"),))),
        (b'{"n": ' + b"9" * 309 + b"}", Document(value={"n": 0}, defects=(error("/n", "number out of range"),))),
        (b'{"note": "a\\ud83d!"}', Document(value={"note": "a\ufffd!"}, defects=(error("/note", "text contains a lone surrogate"),))),
        (b'["\\ude00\\ud83d"]', Document(value=["\ufffd\ufffd"], defects=(error("/0", "text contains a lone surrogate"),))),
        (b'{"\\ud83d": 1}', Document(value={"\ufffd": 1}, defects=(error("/\ufffd", "text contains a lone surrogate"),))),
        (b"1e400", Document(value=0, defects=(error("", "number out of range"),))),
        (b'{"a/b~": [1e400]}', Document(value={"a/b~": [0]}, defects=(error("/a~1b~0/0", "number out of range"),))),
    ],
)
def test_what_nothing_can_carry_is_replaced_and_named(body: bytes, document: Document):
    assert read_json(body) == document


def test_two_different_lone_surrogates_are_not_one_key_and_the_same_one_twice_is():
    assert len(read_json(b'{"\\ud800": 1, "\\ud801": 2}').defects) == 2
    with pytest.raises(NotJson, match="duplicate key"):
        read_json(b'{"\\ud800": 1, "\\ud800": 2}')


@pytest.mark.parametrize("depth", [33, 150, 1_500, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_any_nesting_is_found_and_never_raises(depth: int, opening: str, closing: str):
    body = f'{{"call": {{"args": {{"note": {opening * depth}1{closing * depth}}}}}}}'.encode()
    document = read_json(body)
    found = (*document.defects_below("/call/args"), *defects_in(document.value["call"]["args"]))
    assert {each.message for each in found} == {"nested deeper than 32 levels"}
    assert all(each.path.startswith("/note/") for each in found)


def test_a_subtree_that_is_dropped_for_its_depth_must_still_be_json():
    deep = b"[" * 300
    assert read_json(deep + b'{"a":1}' + b"]" * 300).defects != ()
    for inside in (b'{"a":1,"a":2}', b"NaN", b'{"a":}', b"[1,]"):
        with pytest.raises(NotJson):
            read_json(deep + inside + b"]" * 300)
    with pytest.raises(NotJson):
        read_json(deep + b"]" * 299)


def test_no_replacement_of_a_late_call_hides_behind_the_many_of_an_early_one():
    first = ",".join(["1e400"] * 500)
    document = read_json(f'{{"calls": [{{"args": {{"a": [{first}]}}}}, {{"args": {{"b": 1e400}}}}]}}'.encode())
    assert len(document.defects_below("/calls/0/args")) == MAX_DEFECTS
    assert document.defects_below("/calls/1/args") == (error("/b", "number out of range"),)
    assert document.defects_below("/calls/1") == (error("/args/b", "number out of range"),)
    assert document.defects_below("/calls/10") == ()


def test_defects_are_looked_up_by_whole_steps_of_the_pointer():
    document = read_json(b'{"a": 1e400, "a-b": 1e400, "a0": 1e400, "x": {"a": [1e400], "ab": 1e400}}')
    assert document.defects_below("/a") == (error("", "number out of range"),)
    assert document.defects_below("/x/a") == (error("/0", "number out of range"),)
    assert [each.path for each in document.defects_below("")] == ["/a", "/a-b", "/a0", "/x/a/0", "/x/ab"]


def test_pointers_are_bounded_and_can_be_stored():
    document = read_json(b'{"' + b"k" * 100_000 + b'": [1e400], "\\u0000\\n": 1e400}')
    assert len(document.defects[0].path) == 300
    assert document.defects[1].path == "/\ufffd\ufffd"


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"amount_minor":' + b"9" * 5_000 + b"}",
        b"{" + b",".join(b'"%d":0' % number for number in range(25_000)) + b"}",
        b"[" + b"0," * 130_000 + b"1e999]",
        b"[" + b"{}," * 87_000 + b"1e999]",
        b'["' + b"\\\\" * 130_000,
        b'{"a":"' + b"\\u0041" * 43_000 + b'\\ud800"}',
        b"[" + b" " * 260_000,
    ],
    ids=["deep", "long number", "many keys", "many numbers", "many objects", "open text", "escapes", "spaces"],
)
def test_the_worst_bodies_are_read_in_linear_time(body: bytes):
    # Generous, since test machines are slow: a quadratic reader would need minutes.
    assert len(body) <= LIMIT
    start = time.perf_counter()
    with contextlib.suppress(NotJson):
        defects_in(read_json(body).value)
    assert time.perf_counter() - start < 2


def test_finds_nothing_in_plain_arguments():
    assert (
        defects_in({"city": "Paris, France", "max": 250, "rate": 0.5, "big": 2**53 - 1, "on": True, "none": None, "list": [1, {"a": "é"}]})
        == ()
    )


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**63, 10**30, 9007199254740992.0, 1e300, math.nan, math.inf])
def test_finds_numbers_that_do_not_stay_exact(value: float):
    assert defects_in({"account": [value]}) == (error("/account/0", "number out of range"),)


def test_finds_nul_and_lone_surrogates_in_texts_and_keys():
    assert defects_in({"note": "a\0b", "k\0": 1, "s": "\ud83d"}) == (
        error("/note", "text contains U+0000"),
        error("/k\ufffd", "text contains U+0000"),
        error("/s", "text contains a lone surrogate"),
    )


def test_thirty_two_levels_are_allowed_and_one_more_is_not():
    value: object = 1
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert defects_in({"a": value}) == ()
    assert defects_in({"a": [value]}) == (error("/a" + "/0" * (MAX_DEPTH - 1), "nested deeper than 32 levels"),)


def test_finds_too_many_keys_and_too_many_values():
    assert defects_in({"a": dict.fromkeys(map(str, range(MAX_KEYS + 1)))}) == (error("/a", "object has more than 1000 keys"),)
    assert defects_in({"a": [0] * MAX_VALUES}) == (error("", "more than 10000 values"),)


def test_the_list_of_defects_is_bounded():
    assert len(defects_in(["\0"] * 500)) == MAX_DEFECTS


def test_a_value_deeper_than_python_recurses_is_no_problem():
    value: object = 1
    for _ in range(100_000):
        value = [value]
    assert [each.message for each in defects_in(value)] == ["nested deeper than 32 levels"]
