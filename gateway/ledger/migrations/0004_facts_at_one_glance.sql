-- Facts of any call from a few index entries, however many calls there were; and rows as values, so that statements on many
-- rows take one parameter.

ALTER TABLE calls ADD COLUMN tool_ordinal bigint;
COMMENT ON COLUMN calls.tool_ordinal IS 'the version of (subject, tool) that its admission made: a difference of two is a count of calls; null where the tool has facts: none';

-- Calls so far get their ordinals, so that what was counted before is counted on.
UPDATE calls SET tool_ordinal = numbered.ordinal
FROM (SELECT tenant, decision_id, row_number() OVER (PARTITION BY tenant, subject, tool ORDER BY admitted_at, decision_id) AS ordinal
      FROM calls) AS numbered
WHERE calls.tenant = numbered.tenant AND calls.decision_id = numbered.decision_id;
INSERT INTO subject_tools (tenant, subject, tool, version)
SELECT tenant, subject, tool, max(tool_ordinal) FROM calls GROUP BY tenant, subject, tool
ON CONFLICT (tenant, subject, tool) DO UPDATE SET version = excluded.version;

DROP INDEX calls_recent, calls_of_input;
CREATE INDEX calls_recent ON calls (tenant, subject, tool, admitted_at) WHERE tool_ordinal IS NOT NULL;
CREATE INDEX calls_without_effect ON calls (tenant, subject, tool, admitted_at) WHERE tool_ordinal IS NOT NULL AND state IN ('open', 'failed');
CREATE INDEX calls_of_input ON calls (tenant, fingerprint, admitted_at);
CREATE INDEX calls_failed ON calls (tenant, agent, run_id, fingerprint)
    WHERE state = 'failed' OR reason_code IN ('EXECUTION_TEMPORARY', 'EXECUTION_TIMEOUT');

CREATE TYPE claim_key AS (kind text, scope text, digest bytea);
CREATE TYPE facts_question AS (
    place integer,
    agent text,
    run_id text,
    subject text,
    tool text,
    fingerprint bytea,
    approval_id uuid,
    business_key bytea,
    transport_key bytea
);
