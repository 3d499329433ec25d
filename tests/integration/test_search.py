"""Searches of the real decision log against a simple model: the same records in a list, each term a function on a record."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from gateway.domain.ports import LogQuery
from gateway.domain.query_language import read_query
from gateway.domain.record import RecordDraft
from gateway.ledger import search
from gateway.ledger.database import Database
from gateway.ledger.log import Entry, PostgresLog, append_records

COUNT = 500
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
TENANT = "default"

Document = dict[str, Any]

AGENTS = ["travel-assistant", "trip_alerts", "a,b"]
SUBJECTS = [*(f"person-{number}" for number in range(40)), "Ada%", 'q"uote', None]
TOOLS = ["book_hotel", "book_flight", "search_hotels", "bookXhotel", "delete everything", None]
WORKFLOWS = ["trip_planning", "trip_booking", None]
CLASSES = [
    ("decision", "allow", None, "POLICY_ALLOWED", "decide"),
    ("decision", "deny", "blocked", "DEFAULT_DENY", "decide"),
    ("decision", "deny", "blocked", "APPROVAL_DENIED", "facts"),
    ("decision", "confirm", "confirmation_required", "APPROVAL_REQUIRED", "decide"),
    ("outcome", "allow", "ok", "EXECUTION_SUCCEEDED", "settle"),
    ("activation", None, None, None, None),
]
WORDS = ["city", "cardToken", "hotelId", "late fee", "over 9000", "cardholder"]


def a_document(source: random.Random) -> Document:
    kind, effect, status, reason, stage = source.choices(CLASSES, weights=[40, 8, 4, 2, 40, 1])[0]
    return {
        "kind": kind,
        "effect": effect,
        "status": status,
        "reason_code": reason,
        "stage": stage,
        "agent": source.choices(AGENTS, weights=[20, 5, 1])[0],
        "subject": source.choice(SUBJECTS),
        "run_id": f"run-{source.randrange(60)}",
        "workflow": source.choice(WORKFLOWS),
        "tool": source.choice(TOOLS),
        "risk": source.choice(["read", "write", None]),
        "argument_keys": source.sample(WORDS, source.randrange(3)),
    }


@dataclass(frozen=True)
class Term:
    """A term as text, and what it says of a record. Positive terms of one field are alternatives."""

    text: str
    field: str
    is_negated: bool
    holds: Callable[[Document], bool]


def exact(word: str, field: str, value: str) -> tuple[str, str, Callable[[Document], bool]]:
    quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{word}:{quoted}", field, lambda record: record[field] == value


def beginning(word: str, field: str, prefix: str) -> tuple[str, str, Callable[[Document], bool]]:
    return f"{word}:{prefix}*", field, lambda record: record[field] is not None and record[field].startswith(prefix)


def ending(word: str, field: str, suffix: str) -> tuple[str, str, Callable[[Document], bool]]:
    return f"{word}:*{suffix}", field, lambda record: record[field] is not None and record[field].endswith(suffix)


def saying(text: str) -> tuple[str, str, Callable[[Document], bool]]:
    wanted = f" {text.lower()} "
    return f'"{text}"', "", lambda record: any(wanted in f" {key.lower()} " for key in spoken(record))


def beginning_a_word(text: str) -> tuple[str, str, Callable[[Document], bool]]:
    return f"{text}*", "", lambda record: any(word.startswith(text) for key in spoken(record) for word in key.lower().split())


def spoken(record: Document) -> list[str]:
    # Argument names count for decisions only, and in their order words of two names may stand side by side.
    return [" ".join(record["argument_keys"])] if record["kind"] == "decision" else []


Choice = tuple[str, str, Callable[[Document], bool]]


def a_term(chosen: Choice, is_negated: bool) -> Term:  # noqa: FBT001 - given by hypothesis
    text, field, holds = chosen
    return Term("-" + text if is_negated else text, field, is_negated, holds)


CHOICES = st.one_of(
    st.sampled_from([exact("agent", "agent", value) for value in AGENTS]),
    st.sampled_from([exact("subject", "subject", value) for value in SUBJECTS if value]),
    st.sampled_from([exact("tool", "tool", value) for value in TOOLS if value]),
    st.sampled_from([exact("workflow", "workflow", value) for value in WORKFLOWS if value]),
    st.sampled_from([exact("run", "run_id", f"run-{number}") for number in (0, 7, 59, 1000)]),
    st.sampled_from([exact("effect", "effect", value) for value in ("allow", "deny", "confirm", "suppress")]),
    st.sampled_from([exact("kind", "kind", value) for value in ("decision", "outcome", "activation", "replay")]),
    st.sampled_from([exact("reason", "reason_code", value) for value in ("DEFAULT_DENY", "EXECUTION_SUCCEEDED", "X_NONE")]),
    st.sampled_from([exact("risk", "risk", "write"), exact("stage", "stage", "facts"), exact("status", "status", "ok")]),
    st.sampled_from([beginning("tool", "tool", "book_"), beginning("run", "run_id", "run-1"), beginning("reason", "reason_code", "APPROVAL_")]),
    st.sampled_from([beginning("subject", "subject", ""), beginning("agent", "agent", "t"), ending("tool", "tool", "_hotel")]),
    st.sampled_from([saying(text) for text in ("city", "late fee", "fee", "CardToken", "over", "nothing")]),
    st.sampled_from([beginning_a_word("card"), beginning_a_word("cardt"), beginning_a_word("zz")]),
)  # fmt: skip
TERMS = st.builds(a_term, CHOICES, st.booleans())
WINDOWS = st.tuples(*(st.none() | st.integers(-5, COUNT + 5) for _ in range(2)))


def expected(records: list[Document], terms: list[Term], after: datetime | None, before: datetime | None) -> list[int]:
    def matches(record: Document) -> bool:
        alternatives: dict[str, list[bool]] = {}
        for term in terms:
            if term.is_negated:
                if term.holds(record):
                    return False
            else:
                alternatives.setdefault(term.field or term.text, []).append(term.holds(record))
        at = record["at"]
        return all(map(any, alternatives.values())) and (after is None or at >= after) and (before is None or at < before)

    return [position for position, record in enumerate(records) if matches(record)]


@dataclass
class Log:
    """A filled log, and what was written to it."""

    runner: asyncio.Runner
    database: Database
    records: list[Document]

    @property
    def log(self) -> PostgresLog:
        """What is tested."""
        return PostgresLog(self.database, _no_payloads)

    def pages(self, query: str, *, limit: int, newest_first: bool) -> list[int]:
        """The positions that a search gives, page after page."""
        return self.runner.run(self._pages(query, limit, newest_first=newest_first))

    async def _pages(self, query: str, limit: int, *, newest_first: bool) -> list[int]:
        found: list[int] = []
        asked = LogQuery(tenant=TENANT, search=read_query(query), limit=limit, newest_first=newest_first)
        low, high = 0, None
        while True:
            page = await self.log.find(replace(asked, low=low, high=high))
            assert len(page.records) <= limit
            found += [record.position for record in page.records]
            if page.bound is None:
                return found
            assert page.bound != (high if newest_first else low), "a page that goes nowhere"
            low, high = (0, page.bound) if newest_first else (page.bound, None)


@pytest.fixture
def log(database_url: str) -> Generator[Log]:
    """Records by the one who writes them, over three days; every 50th has the time of the one before."""
    source = random.Random(20261101)  # noqa: S311 - the same records in every run
    documents = [a_document(source) for _ in range(COUNT)]
    with asyncio.Runner() as runner:
        database = runner.run(Database.connect(database_url))
        times = runner.run(_fill(database, documents))
        for document, at in zip(documents, times, strict=True):
            document["at"] = at
        yield Log(runner=runner, database=database, records=documents)
        runner.run(database.close())


async def _fill(database: Database, documents: list[Document]) -> list[datetime]:
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO log_heads (tenant, size) VALUES ($1, 0), ('other', 0)", TENANT)
    for number in range(0, COUNT, 50):
        for tenant in (TENANT, "other"):
            drafts = [
                RecordDraft(
                    decision_id=uuid7(),
                    kind=each["kind"],
                    tenant=tenant,
                    facts={name: value for name, value in each.items() if name != "kind"},
                )
                for each in documents[number : number + 50]
            ]
            async with database.transaction() as connection:
                await append_records(connection, database.sql, tenant, [Entry(draft, None, {}) for draft in drafts])
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT at FROM records WHERE tenant = $1 ORDER BY position", TENANT)
    return [row["at"] for row in rows]


# Small steps reach the edges that take a million records otherwise.
SMALL = {"STEP_ROWS": 7, "WALK_ROWS": 40, "WORDS_ROWS": 7, "MAX_VALUES": 3, "MAX_HITS": 9, "CLOCK_SLACK": timedelta(0)}


@pytest.mark.parametrize("sizes", [{}, SMALL], ids=["as it is", "small steps"])
def test_finds_what_the_model_finds_page_by_page(log: Log, sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    for name, value in sizes.items():
        monkeypatch.setattr(search, name, value)

    @settings(max_examples=60)
    @given(st.lists(TERMS, max_size=4), WINDOWS, st.integers(1, 60), st.booleans())
    def compare(terms: list[Term], window: tuple[int | None, int | None], limit: int, newest_first: bool):  # noqa: FBT001 - given by hypothesis
        after, before = (None if place is None else _time(log, place) for place in window)
        texts = [term.text for term in terms]
        texts += [f"{word}:{time.isoformat()}" for word, time in (("after", after), ("before", before)) if time is not None]
        wanted = expected(log.records, terms, after, before)
        found = log.pages(" ".join(texts), limit=limit, newest_first=newest_first)
        assert found == (wanted[::-1] if newest_first else wanted), " ".join(texts)

    compare()


def _time(log: Log, place: int) -> datetime:
    if 0 <= place < COUNT:
        return log.records[place]["at"]
    return log.records[0 if place < 0 else -1]["at"] + timedelta(seconds=place)


@pytest.mark.parametrize("text", ["", "effect:deny", "-agent:a*", "tool:book_* city", "run:none"])
def test_counts_what_the_model_counts(log: Log, text: str):
    counts = log.runner.run(log.log.count(LogQuery(tenant=TENANT, search=read_query(text)), ["tool", "agent"]))
    matching = [log.records[position] for position in log.pages(text, limit=1000, newest_first=True)]
    assert counts.is_complete
    assert counts.total == Counter(record["effect"] for record in matching)
    for field in ("tool", "agent"):
        said = {(value, effect): count for value, effects in counts.by_field[field].items() for effect, count in effects.items()}
        assert said == Counter((record[field], record["effect"]) for record in matching if record[field] is not None)


def test_says_where_it_counted_the_newest_only(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "STEP_ROWS", 50)
    monkeypatch.setattr(search, "COUNT_ROWS", 100)
    counts = log.runner.run(log.log.count(LogQuery(tenant=TENANT), ["kind"]))
    assert (counts.is_complete, sum(counts.total.values())) == (False, 100)
    assert counts.total == Counter(record["effect"] for record in log.records[-100:])


async def _no_payloads(*_: object) -> None:
    raise AssertionError


def test_a_step_back_of_the_clock_hides_nothing(log: Log, postgres: Any):
    late = log.records[-1]["at"]

    async def step_back() -> None:
        owner = await asyncpg.connect(postgres.owner_url.replace("/postgres?", f"/{await _database_of(log)}?"))
        await owner.execute("SET session_replication_role = replica")  # a superuser's way around the triggers that refuse this
        # As if the clock had gone back by five seconds before the last hundred records.
        await owner.execute("UPDATE records SET at = at - interval '5 s' WHERE tenant = $1 AND position >= $2", TENANT, COUNT - 100)
        await owner.close()

    log.runner.run(step_back())
    for position in range(COUNT - 100, COUNT):
        log.records[position]["at"] -= timedelta(seconds=5)
    for text, limit in (
        (f"before:{(late - timedelta(seconds=5)).isoformat()}", 10),
        (f"after:{(late - timedelta(seconds=6)).isoformat()}", 10),
    ):
        after = late - timedelta(seconds=6) if text.startswith("after") else None
        before = late - timedelta(seconds=5) if text.startswith("before") else None
        assert log.pages(text, limit=limit, newest_first=False) == expected(log.records, [], after, before)


async def _database_of(log: Log) -> str:
    async with log.database.connection() as connection:
        return await connection.fetchval("SELECT current_database()")
