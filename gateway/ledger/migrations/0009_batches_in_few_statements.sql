-- Rows that batches hand over as values, so that a statement on many rows takes one parameter; in the order of their fields.

CREATE TYPE claim_wanted AS (kind text, scope text, digest bytea, fingerprint bytea, decision_id uuid, ttl_s double precision);
CREATE TYPE run_change AS (agent text, run_id text, workflow text, subject text, calls integer, failures integer);
CREATE TYPE version_change AS (subject text, tool text, version bigint);
CREATE TYPE budget_change AS (name text, scope text, period text, reserved bigint, spent bigint);
CREATE TYPE admitted_call AS (
    decision_id uuid, agent text, subject text, run_id text, workflow text, tool text, fingerprint bytea, told bytea, risk text, replay text,
    lease_s double precision, invocation bytea, business_key bytea, window_s double precision, tool_ordinal bigint, state text
);
CREATE TYPE new_hold AS (decision_id uuid, name text, scope text, period text, unit text, amount bigint);
CREATE TYPE ended_call AS (decision_id uuid, state text, status text, reason_code text, result bytea, attempts integer);
CREATE TYPE ended_hold AS (decision_id uuid, name text, state text, settled bigint);
CREATE TYPE new_record AS (
    decision_id uuid, position bigint, kind text, at timestamptz, about uuid, agent text, subject text, run_id text, workflow text, tool text,
    effect text, reason_code text, status text, stage text, risk text, words text, body bytea, leaf bytea
);

-- A hold is written by the transaction that holds its budget and its call, and neither is ever deleted: to look both up again
-- for each hold cost a call with twenty budgets more than everything else.
ALTER TABLE reservations DROP CONSTRAINT reservations_tenant_name_scope_period_fkey, DROP CONSTRAINT reservations_tenant_decision_id_fkey;
