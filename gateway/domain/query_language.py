r"""Reading a search from its text. Errors name the characters that they are about.

::

    query  = { term }            terms are parted by blanks
    term   = ["-"] field ":" value { "," value }
           | ["-"] word | ["-"] '"' text '"'
    value  = characters without blank, comma and quote; * is any text
           | '"' characters, with \" and \\ '"'         * is a star
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from gateway.domain.search import CLOSED_VALUES, SEARCH_FIELDS, TIME_WORDS, Pattern, Phrase, Search, split_words

MAX_QUERY = 2_000
MAX_TERMS = 64
MAX_VALUE = 256
YEARS = range(1970, 10_000)

_FIELD = re.compile(r"[A-Za-z_]+(?=:)")
_BARE = re.compile(r'[^\s,"]+')
_BARE_TIME = re.compile(r"\S+")
_WORD = re.compile(r'[^\s"]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_REASON_CODE = re.compile(r"[A-Z_0-9]+")
_ALL_FIELDS = (*SEARCH_FIELDS, *TIME_WORDS)


class QueryError(Exception):
    """A query that cannot be read: what is wrong, and with which characters of it."""

    def __init__(self, message: str, offset: int, length: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.length = max(length, 1)


@dataclass(frozen=True, kw_only=True)
class _Value:
    text: str
    offset: int
    length: int
    is_quoted: bool


def read_query(text: str) -> Search:
    """The search that `text` describes. Raises QueryError."""
    if len(text) > MAX_QUERY:
        raise QueryError(f"A query has at most {MAX_QUERY:,} characters.", MAX_QUERY)
    for offset, char in enumerate(text):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            raise QueryError("This character cannot stand in any record.", offset)
    return _Reader(text).read()


def read_moment(text: str) -> datetime | None:
    """A day (its first moment, UTC) or a time with its zone, as UTC; None where `text` is neither."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            found = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            found = datetime.fromisoformat(text)
            if found.tzinfo is None:
                return None
            # In UTC at once: a zone can push the first and the last day out of what can be calculated with.
            found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if found.year in YEARS else None


def narrow(search: Search, *, after: datetime | None, before: datetime | None) -> Search:
    """The search within a second window."""
    return replace(
        search,
        after=max((time for time in (search.after, after) if time is not None), default=None),
        before=min((time for time in (search.before, before) if time is not None), default=None),
    )


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._wanted: dict[str, list[Pattern]] = {}
        self._unwanted: dict[str, list[Pattern]] = {}
        self._phrases: list[Phrase] = []
        self._unwanted_phrases: list[Phrase] = []
        self._times: dict[str, datetime] = {}

    def read(self) -> Search:
        count = 0
        while self._skip_blanks():
            count += 1
            if count > MAX_TERMS:
                raise QueryError(f"A query has at most {MAX_TERMS} terms.", self._at)
            self._read_term()
        after, before = self._times.get("after"), self._times.get("before")
        return Search(
            wanted=_frozen(self._wanted),
            unwanted=_frozen(self._unwanted),
            phrases=tuple(self._phrases),
            unwanted_phrases=tuple(self._unwanted_phrases),
            after=after,
            before=before,
        )

    def _skip_blanks(self) -> bool:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _read_term(self) -> None:
        began = self._at
        is_negated = self._text[self._at] == "-"
        self._at += is_negated
        if self._at == len(self._text) or self._text[self._at].isspace():
            raise QueryError("A `-` stands directly before what must not hold.", began)
        match = _FIELD.match(self._text, self._at)
        if match is None:
            self._read_words(is_negated=is_negated)
            return
        word = match[0]
        if word not in _ALL_FIELDS:
            raise QueryError(_unknown_field(word), match.start(), len(word))
        self._at = match.end() + 1
        if word in TIME_WORDS:
            self._read_time(word, began, is_negated=is_negated)
        else:
            into = self._unwanted if is_negated else self._wanted
            into.setdefault(SEARCH_FIELDS[word], []).extend(_pattern(word, value) for value in self._read_values(word))

    def _read_values(self, word: str) -> Iterable[_Value]:
        while True:
            yield self._read_value(word)
            if not self._text.startswith(",", self._at):
                break
            self._at += 1
        self._expect_end()

    def _read_value(self, word: str) -> _Value:
        began = self._at
        if self._text.startswith('"', began):
            text, is_quoted = self._read_quoted(), True
        else:
            match = _BARE.match(self._text, began)
            text, is_quoted = (match[0] if match else ""), False
            self._at += len(text)
        if not text:
            raise QueryError(f"`{word}:` is followed by a value.", began)
        if len(text) > MAX_VALUE:
            raise QueryError(f"A value has at most {MAX_VALUE} characters.", began, self._at - began)
        return _Value(text=text, offset=began, length=self._at - began, is_quoted=is_quoted)

    def _read_quoted(self) -> str:
        match = _QUOTED.match(self._text, self._at)
        if match is None:
            backslash = re.compile(r'\\(?!["\\])').search(self._text, self._at)
            if backslash is not None and '"' in self._text[backslash.end() :]:
                raise QueryError('Within quotes a backslash stands before `"` or another backslash.', backslash.start())
            raise QueryError("This quote is never closed.", self._at)
        self._at = match.end()
        return re.sub(r"\\(.)", r"\1", match[1])

    def _expect_end(self) -> None:
        if self._at < len(self._text) and not self._text[self._at].isspace():
            raise QueryError("A blank is missing here.", self._at)

    def _read_time(self, word: str, began: int, *, is_negated: bool) -> None:
        if is_negated:
            other = TIME_WORDS[1 - TIME_WORDS.index(word)]
            raise QueryError(f"Write `{other}:` for the times that `{word}:` leaves out.", began)
        match = _BARE_TIME.match(self._text, self._at)
        text = match[0] if match else ""
        moment = read_moment(text)
        if moment is None:
            message = f"`{word}:` is followed by a day such as 2026-11-01 or a time such as 2026-11-01T08:30:00Z."
            raise QueryError(message, self._at, len(text))
        if word in self._times:
            raise QueryError(f"Give `{word}:` once.", began, self._at + len(text) - began)
        self._times[word] = moment
        self._at += len(text)

    def _read_words(self, *, is_negated: bool) -> None:
        began, is_prefix = self._at, False
        if self._text.startswith('"', began):
            text = self._read_quoted()
            self._expect_end()
        else:
            match = _WORD.match(self._text, began)
            text = match[0] if match else ""
            self._at += len(text)
            self._expect_end()
            is_prefix = text.endswith("*")
            text = text.removesuffix("*")
            if "*" in text:
                raise QueryError("In words a `*` stands at the end only.", began + text.index("*"))
        words = split_words(text)
        if not words:
            raise QueryError("There is no letter or digit to look for.", began, self._at - began)
        into = self._unwanted_phrases if is_negated else self._phrases
        into.append(Phrase(words=tuple(words), is_prefix=is_prefix and text[-1:].isalnum()))


def _pattern(word: str, value: _Value) -> Pattern:
    parts = (value.text,) if value.is_quoted else tuple(re.split(r"\*+", value.text))
    pattern = Pattern(parts=parts)
    known = CLOSED_VALUES.get(word)
    if known is not None and not any(map(pattern.matches, known)):
        raise QueryError(f"`{word}` is one of {', '.join(known)}.", value.offset, value.length)
    if word == "reason" and not all(_REASON_CODE.fullmatch(part) for part in parts if part):
        message = "`reason` is a reason code such as TOOL_UNKNOWN: capitals, digits and _."
        raise QueryError(message, value.offset, value.length)
    return pattern


def _unknown_field(word: str) -> str:
    close = difflib.get_close_matches(word.lower(), _ALL_FIELDS, n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"There is no field `{word}`.{hint} Fields: {', '.join(_ALL_FIELDS)}. Put text that has a colon in quotes."


def _frozen(patterns: dict[str, list[Pattern]]) -> dict[str, tuple[Pattern, ...]]:
    return {name: tuple(dict.fromkeys(found)) for name, found in patterns.items()}
