"""Searching the decision log: walking it along the index that leads to the matches with the fewest steps.

A walk goes along one field's values (or along all positions), newest or oldest first, and looks at a bounded number of
records a step. Statements are put together from the literals here, and from nothing else: which columns there are to walk
along and to filter by is the same list over and over.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gateway.domain.search import SEARCH_FIELDS, Pattern, Phrase, Search
from gateway.ledger.database import Connection, Row

WALKED = ("run_id", "subject", "tool", "agent", "workflow")
"""Fields with an index of their own."""
CLASS = ("kind", "effect", "status", "reason_code", "stage", "risk")
"""Fields with few values, which share one index."""
FIELDS = tuple(SEARCH_FIELDS.values())

MAX_VALUES = 200
"""Values of a field that a walk may go along at once; where a pattern means more of them, matches are no rarity."""
MAX_CLASSES = 2_000
STEP_ROWS = 16_384
"""Records that one step looks at."""
WALK_ROWS = 50_000
"""Records that one page looks at before it comes back with what it has."""
COUNT_ROWS = 200_000
"""Records that counting looks at."""
WORDS_ROWS = 3_000
"""Records without enough matches after which words count as rare, and their index is asked."""
MAX_HITS = 20_000
"""Matches of words that are taken from the index of words at once."""
CLOCK_SLACK = timedelta(seconds=10)
"""Times rise with positions but for steps of the database's clock; those up to this long do not hide anything."""

_CLASS_OF = " || ' ' || ".join(name if name == "kind" else f"coalesce({name}, '')" for name in CLASS)
_COLUMN: Mapping[str, str] = {name: f'({name} COLLATE "C")' for name in WALKED} | {"class": f'(({_CLASS_OF}) COLLATE "C")'}
_SEEN = ", ".join(("position", "at", "words", *FIELDS))

# $1 tenant, $2 lowest position, $3 first position beyond, $4 rows a value, $5 values, $6 records wanted (or fields to count by),
# $7.. the filter's.
_TAKEN = """
WITH taken AS MATERIALIZED (
    SELECT along.value AS along, one.* FROM unnest($5::text[]) AS along (value) CROSS JOIN LATERAL (
        SELECT {seen} FROM records WHERE tenant = $1 AND position >= $2 AND position < $3 {condition}
        ORDER BY position {direction} LIMIT $4) AS one),
-- A value that gave all the rows it may has more: what lies beyond its last row is not known yet.
edge AS (SELECT {nearest}(last) AS position FROM (
    SELECT {furthest}(position) AS last FROM taken GROUP BY along HAVING count(*) >= $4) AS cut),
matching AS (SELECT taken.* FROM taken, edge WHERE (edge.position IS NULL OR taken.position {within} edge.position) AND {filter})
"""
# The same by the index of words, which knows no order: all of its hits, or nothing.
_TAKEN_BY_WORDS = """
WITH taken AS MATERIALIZED (
    SELECT {seen} FROM records WHERE tenant = $1 AND words IS NOT NULL
    AND array_to_tsvector(string_to_array(words, ' ')) @@ $5::text::tsquery LIMIT $4),
edge AS (SELECT CASE WHEN count(*) >= $4 THEN -1::bigint END AS position FROM taken),
matching AS (SELECT taken.* FROM taken, edge WHERE edge.position IS NULL AND taken.position >= $2 AND taken.position < $3 AND {filter})
"""
_ROWS = """
SELECT records.position, records.body, records.leaf, edge.position AS edge
FROM edge LEFT JOIN (SELECT position FROM matching ORDER BY position {direction} LIMIT $6) AS found ON true
LEFT JOIN records ON records.tenant = $1 AND records.position = found.position
ORDER BY records.position {direction}
"""
_COUNTS = """
SELECT named.field, named.value, matching.effect, count(matching.position) AS count, edge.position AS edge
FROM edge LEFT JOIN matching ON true
LEFT JOIN LATERAL (VALUES ('', ''), {named}) AS named (field, value) ON named.field = ANY ($6::text[]) AND named.value IS NOT NULL
GROUP BY named.field, named.value, matching.effect, edge.position
"""
_DISTINCT = """
WITH RECURSIVE found AS (
    (SELECT {column} AS value FROM records WHERE tenant = $1 AND {column} >= $2 AND {column} < $3 ORDER BY {column} LIMIT 1)
    UNION ALL
    SELECT (SELECT {column} FROM records WHERE tenant = $1 AND {column} > found.value AND {column} < $3 ORDER BY {column} LIMIT 1)
    FROM found WHERE found.value IS NOT NULL)
SELECT value FROM found WHERE value IS NOT NULL LIMIT $4
"""
_FIRST_SINCE = "SELECT position FROM records WHERE tenant = $1 AND at >= $2 ORDER BY at LIMIT 1"
_LAST_BEFORE = "SELECT position FROM records WHERE tenant = $1 AND at < $2 ORDER BY at DESC LIMIT 1"
_BEYOND_ALL = "\U0010ffff"
_ONLY_BITMAPS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off"


def _filter() -> str:
    terms = [
        "($7::timestamptz IS NULL OR at >= $7)",
        "($8::timestamptz IS NULL OR at < $8)",
        "($9::text[] IS NULL OR ' ' || coalesce(words, '') || ' ' LIKE ALL ($9))",
        "($10::text[] IS NULL OR NOT ' ' || coalesce(words, '') || ' ' LIKE ANY ($10))",
    ]
    for number, name in enumerate(FIELDS):
        wanted, unwanted = f"${11 + 2 * number}", f"${12 + 2 * number}"
        terms += [
            f"({wanted}::text[] IS NULL OR {name} LIKE ANY ({wanted}))",
            f"({unwanted}::text[] IS NULL OR {name} IS NULL OR NOT {name} LIKE ANY ({unwanted}))",
        ]
    return " AND ".join(terms)


def _write(taken: str, what: str, *, newest_first: bool, column: str | None = None) -> str:
    marks = {"direction": "DESC", "nearest": "max", "furthest": "min", "within": ">="}
    if not newest_first:
        marks = {"direction": "ASC", "nearest": "min", "furthest": "max", "within": "<="}
    marks |= {
        "seen": ", ".join(("position", "at", "words", *FIELDS)),
        "condition": f"AND {_COLUMN[column]} = along.value" if column else "",
        "filter": _filter(),
        "named": ", ".join(f"('{name}', {name})" for name in FIELDS),
    }
    return (taken + what).format_map(marks)


_Shape = tuple[str | None, bool, bool]
"""The column that is walked along (None: positions), newest first, rows and not counts."""
_STATEMENTS: Mapping[_Shape, str] = {
    (column, newest_first, is_rows): _write(_TAKEN, _ROWS if is_rows else _COUNTS, newest_first=newest_first, column=column)
    for column in (None, *_COLUMN)
    for newest_first in (True, False)
    for is_rows in (True, False)
}
_BY_WORDS: Mapping[tuple[bool, bool], str] = {
    (newest_first, is_rows): _write(_TAKEN_BY_WORDS, _ROWS if is_rows else _COUNTS, newest_first=newest_first)
    for newest_first in (True, False)
    for is_rows in (True, False)
}


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """Along which column (None: positions), and its values."""

    column: str | None
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What a step found, and the last position that it knows everything up to; None where it came to the end."""

    rows: Sequence[Row]
    edge: int | None


class LogWalker:
    """One search over one tenant's records, from a range of positions."""

    def __init__(self, connection: Connection, tenant: str, search: Search, *, newest_first: bool) -> None:
        self._connection = connection
        self._tenant = tenant
        self._search = search
        self._newest_first = newest_first
        self._parameters = _filter_parameters(search)

    async def rows(self, low: int, high: int, limit: int) -> tuple[list[Row], int | None]:
        """At most `limit` matching records of positions [low, high), and the bound to go on from; None where there are no more.

        The bound is the next `high` for newest first, else the next `low`. It may come with fewer rows than `limit`: matches are rare, and
        a page looks at so many records and no more.
        """
        found: list[Row] = []
        bound: int | None = None
        async for step in self._steps(low, high, limit, budget=WALK_ROWS):
            found += [row for row in step.rows if row["position"] is not None]
            if len(found) >= limit:
                found = found[:limit]
                bound = self._after(found[-1]["position"])
                break
            bound = None if step.edge is None else self._after(step.edge)
        return found, bound

    async def counts(self, low: int, high: int, fields: Sequence[str]) -> tuple[dict[tuple[str, str, str | None], int], int | None]:
        """How many match, by field, value and effect (field "" counts them all), and the bound beyond which nothing was counted."""
        counted: dict[tuple[str, str, str | None], int] = {}
        bound: int | None = None
        async for step in self._steps(low, high, ["", *fields], budget=COUNT_ROWS):
            for row in step.rows:
                if row["count"]:
                    key = (row["field"], row["value"], row["effect"])
                    counted[key] = counted.get(key, 0) + row["count"]
            bound = None if step.edge is None else self._after(step.edge)
        return counted, bound

    async def _steps(self, low: int, high: int, want: int | list[str], *, budget: int) -> AsyncGenerator[_Step]:
        """Steps one after the other, each going on where the one before ended, until the end or until `budget` records were looked at."""
        low, high = await self._narrow(low, high)
        walks: list[_Walk] = await self._walks()
        # Rows are few, so that a step begins small; whoever counts wants them all.
        size = want if isinstance(want, int) else STEP_ROWS
        looked, tried_words = 0, not self._search.phrases
        while low < high and looked < budget:
            tried = [(walk, await self._step(walk, low, high, want, size)) for walk in walks]
            looked += sum(_rows_a_value(walk, size) * len(walk.values) for walk in walks)
            # The way that came furthest has the fewest records on it that do not match.
            walk, step = max(tried, key=lambda each: self._distance(each[1].edge))
            walks, size = [walk], min(size * 8, STEP_ROWS)
            yield step
            if step.edge is None:
                return
            low, high = (low, step.edge) if self._newest_first else (step.edge + 1, high)
            if looked >= WORDS_ROWS and not tried_words:
                tried_words = True
                by_words = await self._step_by_words(low, high, want)
                if by_words.edge is None:
                    yield by_words
                    return

    async def _step(self, walk: _Walk, low: int, high: int, want: int | list[str], size: int) -> _Step:
        statement = _STATEMENTS[walk.column, self._newest_first, isinstance(want, int)]
        rows = await self._connection.fetch(
            statement, self._tenant, low, high, _rows_a_value(walk, size), list(walk.values), want, *self._parameters
        )
        return _Step(rows=rows, edge=rows[0]["edge"])

    async def _step_by_words(self, low: int, high: int, want: int | list[str]) -> _Step:
        words = [word for phrase in self._search.phrases for word in _lexemes(phrase)]
        await self._connection.execute(_ONLY_BITMAPS)
        rows = await self._connection.fetch(
            _BY_WORDS[self._newest_first, isinstance(want, int)],
            self._tenant, low, high, MAX_HITS, " & ".join(words), want, *self._parameters,
        )  # fmt: skip
        return _Step(rows=rows, edge=rows[0]["edge"])

    async def _narrow(self, low: int, high: int) -> tuple[int, int]:
        """The part of positions [low, high) in which the search's window lies."""
        # What was written after the first record that is too late is too late as well, unless the clock went back further than we allow for.
        after, before = self._search.after, self._search.before
        if after is not None:
            too_early = await self._connection.fetchval(_LAST_BEFORE, self._tenant, after - CLOCK_SLACK)
            low = low if too_early is None else max(low, too_early + 1)
        if before is not None:
            too_late = await self._connection.fetchval(_FIRST_SINCE, self._tenant, before + CLOCK_SLACK)
            high = high if too_late is None else min(high, too_late)
        return low, high

    async def _walks(self) -> list[_Walk]:
        """The ways to the matches: one for each field that says what it wants, or else along all positions."""
        walks: list[_Walk] = []
        for name in WALKED:
            if (patterns := self._search.wanted.get(name)) is not None:
                values = await self._values(name, patterns)
                if values is not None:
                    walks.append(_Walk(column=name, values=values))
        if any(name in CLASS for name in (*self._search.wanted, *self._search.unwanted)):
            values = await self._classes()
            if values is not None:
                walks.append(_Walk(column="class", values=values))
        return walks or [_Walk(column=None, values=("",))]

    async def _values(self, name: str, patterns: Sequence[Pattern]) -> tuple[str, ...] | None:
        """All values of a field that the patterns mean; None where they are too many to walk along."""
        values: set[str] = set()
        for pattern in patterns:
            if pattern.exact is not None:
                values.add(pattern.exact)
                continue
            found = await self._distinct(name, pattern.parts[0], MAX_VALUES + 1)
            if len(found) > MAX_VALUES:
                return None
            values.update(filter(pattern.matches, found))
        return tuple(sorted(values)) if len(values) <= MAX_VALUES else None

    async def _classes(self) -> tuple[str, ...] | None:
        found = await self._distinct("class", "", MAX_CLASSES)
        fitting = tuple(text for text in found if self._fits(dict(zip(CLASS, text.split(" "), strict=True))))
        return fitting if len(found) < MAX_CLASSES and len(fitting) <= MAX_VALUES else None

    def _fits(self, record: Mapping[str, str]) -> bool:
        wanted = ((record.get(name), patterns) for name, patterns in self._search.wanted.items() if name in CLASS)
        unwanted = ((record.get(name), patterns) for name, patterns in self._search.unwanted.items() if name in CLASS)
        return all(value and _any_matches(patterns, value) for value, patterns in wanted) and not any(
            value and _any_matches(patterns, value) for value, patterns in unwanted
        )

    async def _distinct(self, column: str, prefix: str, limit: int) -> list[str]:
        statement = _DISTINCT.format(column=_COLUMN[column])
        rows = await self._connection.fetch(statement, self._tenant, prefix, prefix + _BEYOND_ALL, limit)
        return [row["value"] for row in rows]

    def _distance(self, edge: int | None) -> float:
        if edge is None:
            return float("inf")
        return -edge if self._newest_first else edge

    def _after(self, position: int) -> int:
        return position if self._newest_first else position + 1


def _rows_a_value(walk: _Walk, size: int) -> int:
    return max(1, min(size, STEP_ROWS // max(1, len(walk.values))))


def _any_matches(patterns: Sequence[Pattern], value: str) -> bool:
    return any(pattern.matches(value) for pattern in patterns)


def _filter_parameters(search: Search) -> list[Any]:
    parameters: list[Any] = [search.after, search.before, _like_phrases(search.phrases), _like_phrases(search.unwanted_phrases)]
    for name in FIELDS:
        parameters += [_like(search.wanted.get(name)), _like(search.unwanted.get(name))]
    return parameters


def _like(patterns: Sequence[Pattern] | None) -> list[str] | None:
    if patterns is None:
        return None
    return ["%".join(_escape(part) for part in pattern.parts) for pattern in patterns]


def _escape(part: str) -> str:
    return part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _like_phrases(phrases: Sequence[Phrase]) -> list[str] | None:
    # Words are letters and digits: nothing in them needs an escape.
    return [f"% {' '.join(phrase.words)}{'' if phrase.is_prefix else ' '}%" for phrase in phrases] or None


def _lexemes(phrase: Phrase) -> list[str]:
    quoted = [f"'{word}'" for word in phrase.words]
    return [*quoted[:-1], quoted[-1] + (":*" if phrase.is_prefix else "")]
