"""The query language: what a text means, and which characters an error points at."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.query_language import MAX_QUERY, QueryError, read_query
from gateway.domain.search import Pattern, Phrase, Search, split_words


def exactly(*texts: str) -> tuple[Pattern, ...]:
    return tuple(Pattern(parts=(text,)) for text in texts)


def test_reads_the_example_of_the_design():
    text = 'effect:deny tool:book_* reason:APPROVAL_* subject:ada after:2026-11-01 -workflow:trip_planning "free text"'
    assert read_query(text) == Search(
        wanted={
            "effect": exactly("deny"),
            "tool": (Pattern(parts=("book_", "")),),
            "reason_code": (Pattern(parts=("APPROVAL_", "")),),
            "subject": exactly("ada"),
        },
        unwanted={"workflow": exactly("trip_planning")},
        phrases=(Phrase(words=("free", "text")),),
        after=datetime(2026, 11, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", Search()),
        (" \t\n ", Search()),
        ("effect:deny,confirm effect:deny", Search(wanted={"effect": exactly("deny", "confirm")})),
        ('subject:"a b,c*\\"\\\\"', Search(wanted={"subject": exactly('a b,c*"\\')})),
        ("tool:*_hotel*x", Search(wanted={"tool": (Pattern(parts=("", "_hotel", "x")),)})),
        ("agent:é-1", Search(wanted={"agent": exactly("é-1")})),
        ("-status:ok -tool:a,b", Search(unwanted={"status": exactly("ok"), "tool": exactly("a", "b")})),
        ("Card-Token", Search(phrases=(Phrase(words=("card", "token")),))),
        ("tok* -\"it's over\"", Search(phrases=(Phrase(words=("tok",), is_prefix=True),), unwanted_phrases=(Phrase(words=("it", "s", "over")),))),
        ('"a*"', Search(phrases=(Phrase(words=("a",)),))),
        ("before:2026-11-01T01:30:00+01:00", Search(before=datetime(2026, 11, 1, 0, 30, tzinfo=UTC))),
    ],
)  # fmt: skip
def test_reads(text: str, meant: Search):
    assert read_query(text) == meant


@pytest.mark.parametrize(
    ("text", "marked", "said"),
    [
        ("effect:deny colour:red", "colour", "There is no field `colour`."),
        ("tol:book_hotel", "tol", "Did you mean `tool`?"),
        ("Effect:deny", "Effect", "Did you mean `effect`?"),
        ("see http://x", "http", "Put text that has a colon in quotes."),
        ("effect:allow,denied", "denied", "`effect` is one of allow, deny, confirm, suppress."),
        ("risk:x*", "x*", "`risk` is one of"),
        ("reason:no-code", "no-code", "capitals, digits and _"),
        ("tool: book", " ", "`tool:` is followed by a value."),
        ("tool:a,,b", ",", "`tool:` is followed by a value."),
        ('tool:"abc', '"', "never closed"),
        ('tool:"a\\b"', "\\", "backslash"),
        ('tool:"a"b', "b", "A blank is missing"),
        ('word"x"', '"', "A blank is missing"),
        ("- effect:deny", "-", "directly before"),
        ("a*b", "*", "at the end only"),
        ("...", "...", "no letter or digit"),
        ("after:yesterday", "yesterday", "a day such as 2026-11-01"),
        ("after:2026-11-01T08:00:00", "2026-11-01T08:00:00", "a day such as"),
        ("after:0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00", "a day such as"),
        ("after:2026-11-01 after:2026-11-02", "after:2026-11-02", "once"),
        ("-after:2026-11-01", "-", "Write `before:`"),
        ("tool:a\0b", "\0", "cannot stand in any record"),
        ("tool:\ud800", "\ud800", "cannot stand in any record"),
        ("tool:" + "x" * 257, "x" * 257, "at most 256"),
        ("a " * 65, "a", "at most 64 terms"),
    ],
)
def test_points_at_what_it_cannot_read(text: str, marked: str, said: str):
    with pytest.raises(QueryError) as caught:
        read_query(text)
    found = caught.value
    assert text[found.offset : found.offset + found.length] == marked
    assert said in found.message


@given(st.text(max_size=60) | st.text(alphabet='ab:"\\-*, efctdny', max_size=40))
def test_every_text_is_read_or_refused_within_its_length(text: str):
    offset = 0
    try:
        read_query(text)
    except QueryError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)


def test_a_query_that_is_too_long_is_refused():
    with pytest.raises(QueryError, match="at most 2,000"):
        read_query("x" * (MAX_QUERY + 1))


def test_words_are_runs_of_letters_and_digits_in_lower_case():
    assert split_words("maxNightlyPriceUsd book_hotel Été 2nd") == ["maxnightlypriceusd", "book", "hotel", "été", "2nd"]
