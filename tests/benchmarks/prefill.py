"""Stored decisions by the hundred thousand: one real call's rows, copied inside PostgreSQL under new ids, times and positions.

Which columns there are does not matter here: a copy is the real row with a few fields replaced, so that this survives
migrations. Ids, times and positions rise together, over the month before yesterday, and belong to the callers' own subjects:
who asks for "the last 24 hours" must not read the months before. Bodies and leaves fit their rows.
"""

from collections.abc import Callable
from typing import Any

import asyncpg

CHUNK = 50_000

_PATTERN = "SELECT decision_id FROM calls WHERE state = 'succeeded' ORDER BY decision_id DESC LIMIT 1"
_SIZE = "SELECT size FROM log_heads WHERE tenant = 'default'"

# $1 first call of the chunk, $2 its last, $3 calls in all.
_MADE = """
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT n, 'stored-' || n / 20 AS run_id, 'subject-' || n % 64 AS subject, at, uuidv7(at - clock_timestamp()) AS decision,
       uuidv7(at - clock_timestamp() + interval '5 ms') AS outcome
FROM (SELECT n, clock_timestamp() - interval '31 days' + n * interval '29 days' / $3::bigint AS at
      FROM generate_series($1::bigint, $2::bigint - 1) AS n) AS numbered
"""
_CALLS = """
INSERT INTO calls SELECT copy.* FROM made, calls AS pattern,
LATERAL jsonb_populate_record(pattern, jsonb_build_object(
    'decision_id', made.decision, 'run_id', made.run_id, 'subject', made.subject, 'admitted_at', made.at,
    'finished_at', made.at + interval '5 ms')) AS copy
WHERE pattern.tenant = 'default' AND pattern.decision_id = $1
"""
_RUNS = """
INSERT INTO runs SELECT copy.* FROM (SELECT run_id, min(subject) AS subject, count(*) AS calls FROM made GROUP BY run_id) AS made, runs AS pattern,
LATERAL jsonb_populate_record(pattern, jsonb_build_object('run_id', made.run_id, 'subject', made.subject, 'calls', made.calls)) AS copy
WHERE pattern.tenant = 'default' AND pattern.run_id = (SELECT run_id FROM calls WHERE tenant = 'default' AND decision_id = $1)
"""
# $1 the pattern's decision, $2 its record's kind, $3 the log's size before, $4 first call of the chunk, $5 0 for decisions, 1 for outcomes.
_RECORDS = """
INSERT INTO records SELECT copy.* FROM made, records AS pattern,
LATERAL (SELECT $3::bigint + 2 * (made.n - $4::bigint) + $5::bigint AS position,
                CASE $2::text WHEN 'decision' THEN made.decision ELSE made.outcome END AS id) AS place,
LATERAL (SELECT convert_to(replace(replace(replace(convert_from(pattern.body, 'UTF8'),
    pattern.decision_id::text, place.id::text), coalesce(pattern.about::text, '?'), made.decision::text),
    '"position":' || pattern.position || ',', '"position":' || place.position || ','), 'UTF8') AS body) AS text,
LATERAL jsonb_populate_record(pattern, jsonb_build_object(
    'decision_id', place.id, 'about', CASE $2::text WHEN 'decision' THEN NULL ELSE made.decision END, 'position', place.position,
    'at', made.at, 'run_id', made.run_id, 'subject', made.subject, 'body', text.body, 'leaf', sha256('\\x00'::bytea || text.body))) AS copy
WHERE pattern.tenant = 'default' AND pattern.kind = $2 AND (pattern.decision_id = $1 OR pattern.about = $1)
"""
_GROW = "UPDATE log_heads SET size = size + $1::bigint WHERE tenant = 'default'"


async def prefill(owner_url: str, calls: int, tell: Callable[[str], None]) -> int:
    """Store `calls` decisions with their outcomes beside the real one that must be there; how many decisions there are then."""
    connection = await asyncpg.connect(owner_url)
    try:
        pattern = await connection.fetchval(_PATTERN)
        for first in range(0, calls, CHUNK):
            tell(f"storing decisions: {first:,} of {calls:,}")
            await _store(connection, pattern, first, min(first + CHUNK, calls), calls)
        await connection.execute("VACUUM ANALYZE calls, runs, records")
        await connection.execute("CHECKPOINT")
        return await connection.fetchval("SELECT count(*) FROM records WHERE kind = 'decision'")
    finally:
        await connection.close()


async def _store(connection: asyncpg.Connection, pattern: Any, first: int, last: int, calls: int) -> None:
    async with connection.transaction():
        size = await connection.fetchval(_SIZE + " FOR UPDATE")
        await connection.execute(_MADE, first, last, calls)
        await connection.execute(_CALLS, pattern)
        await connection.execute(_RUNS, pattern)
        await connection.execute(_RECORDS, pattern, "decision", size, first, 0)
        await connection.execute(_RECORDS, pattern, "outcome", size, first, 1)
        await connection.execute(_GROW, 2 * (last - first))
