"""A decision log of any size, made inside PostgreSQL: records of several kinds, from frequent to rare, with bodies that fit them.

Positions go on where the log ends, times rise with them up to a minute ago, and the leaves are those of the bodies.
"""

from collections.abc import Callable

import asyncpg

CHUNK = 50_000
RARE = "rare-agent"
"""The agent of about ten records in a million."""

# $1 first position of the chunk, $2 its last, $3 records in all.
_RECORDS = """
INSERT INTO records (tenant, decision_id, position, kind, at, about, agent, subject, run_id, workflow, tool, effect, reason_code, status,
                     stage, risk, words, body, leaf)
SELECT 'default', id, n, kind, at, NULL, agent, subject, run_id, workflow, tool, effect, reason_code, status, stage, risk, words, body,
       sha256('\\x00'::bytea || body)
FROM (
    SELECT *, convert_to(json_build_object(
        'decision_id', id, 'position', n, 'kind', kind, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'schema_version', '1.0', 'tenant', 'default', 'agent', agent, 'subject', subject, 'run_id', run_id, 'round', NULL, 'call_id', NULL,
        'workflow', workflow, 'tool', tool, 'tool_digest', 'sha256:' || repeat('ab', 32), 'risk', risk,
        'argument_keys', json_build_array('city', 'maxNightlyPriceUsd'), 'arguments_digest', 'hmac-sha256:' || repeat('cd', 32),
        'effect', effect, 'reason_code', reason_code, 'stage', stage, 'policy', 'travel.search', 'rules', json_build_array(),
        'obligations', json_build_array(), 'revision', 'sha256:' || repeat('ef', 32), 'engine', 'embedded 0.13.0',
        'stages', json_build_array(json_build_object('name', 'recall', 'outcome', 'passed', 'ms', 0.2),
                                   json_build_object('name', 'decide', 'outcome', 'passed', 'ms', 1.7)),
        'status', status, 'outcome', NULL, 'budgets', json_build_array(), 'approval_id', NULL, 'key_digest', NULL,
        'links', json_build_array(), 'trace_id', NULL)::text, 'UTF8') AS body
    FROM (
        SELECT n, uuidv7(at - clock_timestamp()) AS id, at,
            CASE WHEN n % 2 = 1 THEN 'outcome' ELSE 'decision' END AS kind,
            CASE WHEN n % 100000 = 77777 THEN 'rare-agent' ELSE 'agent-' || h % 10 END AS agent,
            'subject-' || h % 5000 AS subject, 'run-' || n / 40 AS run_id, 'workflow-' || h % 6 AS workflow, 'tool_' || h % 50 AS tool,
            CASE WHEN n % 2 = 1 THEN 'allow' WHEN h % 100 < 4 THEN 'deny' WHEN h % 10000 = 9 THEN 'suppress' ELSE 'allow' END AS effect,
            CASE WHEN n % 2 = 1 THEN CASE WHEN h % 50 = 1 THEN 'EXECUTION_FAILED' ELSE 'EXECUTION_SUCCEEDED' END
                 WHEN h % 100 < 4 THEN (ARRAY['DEFAULT_DENY', 'PERMISSION_MISSING', 'RATE_LIMITED', 'TOOL_UNKNOWN'])[1 + h % 4]
                 WHEN h % 10000 = 9 THEN 'SUPPRESSED_DUPLICATE' ELSE 'POLICY_ALLOWED' END AS reason_code,
            CASE WHEN n % 2 = 1 THEN CASE WHEN h % 50 = 1 THEN 'failed' ELSE 'ok' END
                 WHEN h % 100 < 4 THEN 'blocked' WHEN h % 10000 = 9 THEN 'suppressed' END AS status,
            CASE WHEN n % 2 = 1 THEN 'settle' ELSE 'decide' END AS stage,
            (ARRAY['read', 'read', 'write', 'irreversible'])[1 + h % 4] AS risk,
            CASE WHEN n % 2 = 0 THEN 'travel search city maxnightlypriceusd' || CASE WHEN n % 100000 = 5000 THEN ' unicorn' ELSE '' END END AS words
        FROM (SELECT n, abs(hashint8(n)) AS h, clock_timestamp() - interval '1 minute' - ($3::bigint - n) * interval '2 seconds' AS at
              FROM generate_series($1::bigint, $2::bigint - 1) AS n) AS numbered) AS made) AS written
"""
_SIZE = "SELECT size FROM log_heads WHERE tenant = 'default' FOR UPDATE"
_GROW = "UPDATE log_heads SET size = $1 WHERE tenant = 'default'"


async def fill(owner_url: str, records: int, tell: Callable[[str], None]) -> None:
    """Let the log of tenant ``default`` have `records` records."""
    connection = await asyncpg.connect(owner_url)
    try:
        await connection.execute("INSERT INTO log_heads (tenant, size) VALUES ('default', 0) ON CONFLICT DO NOTHING")
        while True:
            async with connection.transaction():
                size = await connection.fetchval(_SIZE)
                if size >= records:
                    break
                tell(f"storing records: {size:,} of {records:,}")
                upto = min(size + CHUNK, records)
                await connection.execute(_RECORDS, size, upto, records)
                await connection.execute(_GROW, upto)
        await connection.execute("VACUUM ANALYZE records")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
