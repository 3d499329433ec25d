-- Every statement of the ledger, each named and described. `gateway.ledger.database` reads this file.

-- name: read_installation
-- Whether the database was made by --dev; no row on a fresh one.
SELECT is_dev FROM installation;

-- name: mark_installation
-- Say once by whom the database was made.
INSERT INTO installation (is_dev) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: lock_control
-- The revision in force, locked against activation until this transaction ends.
SELECT revision, epoch, digest_key FROM controls WHERE tenant = $1 FOR UPDATE;

-- name: share_control
-- The revision in force; an activation waits for us, other admissions do not.
SELECT revision, epoch FROM controls WHERE tenant = $1 FOR SHARE;

-- name: insert_control
-- The first activation of a tenant. Loses silently to a concurrent one; lock_control then tells.
INSERT INTO controls (tenant, revision, epoch, digest_key) VALUES ($1, '', 0, $2) ON CONFLICT (tenant) DO NOTHING;

-- name: update_control
-- Put a revision in force under a new epoch.
UPDATE controls SET revision = $2, epoch = epoch + 1 WHERE tenant = $1 RETURNING epoch;

-- name: insert_log_head
-- A tenant's log starts at size 0.
INSERT INTO log_heads (tenant, size) VALUES ($1, 0) ON CONFLICT (tenant) DO NOTHING;

-- name: find_claim
-- The call that holds a claim, whatever its state; state is null where the claim's call was never admitted.
SELECT claims.decision_id, claims.fingerprint, coalesce(claims.expires_at <= clock_timestamp(), false) AS is_expired,
       calls.state, calls.agent, calls.subject, calls.tool, calls.answer
FROM claims LEFT JOIN calls USING (tenant, decision_id)
WHERE claims.tenant = $1 AND claims.kind = $2 AND claims.scope = $3 AND claims.digest = $4;

-- name: take_claim
-- Take a free claim, or lock the one that stands: the row comes back either way, ours if it names our decision.
INSERT INTO claims AS held (tenant, kind, scope, digest, fingerprint, decision_id, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::float8 * interval '1 second')
ON CONFLICT (tenant, kind, scope, digest) DO UPDATE SET tenant = held.tenant
RETURNING decision_id;

-- name: move_claim
-- Give a claim whose holder no longer needs it to another decision. A transport key keeps its first expiry.
UPDATE claims SET decision_id = $5, fingerprint = $6, expires_at = CASE kind WHEN 'transport' THEN expires_at END
WHERE tenant = $1 AND kind = $2 AND scope = $3 AND digest = $4;

-- name: bind_transport_key
-- A refused call keeps its key bound to its input; an older binding stands.
INSERT INTO claims (tenant, kind, scope, digest, fingerprint, decision_id, expires_at)
VALUES ($1, 'transport', $2, $3, $4, $5, clock_timestamp() + $6::float8 * interval '1 second')
ON CONFLICT (tenant, kind, scope, digest) DO NOTHING;

-- name: end_business_claim
-- A business key holds for its window after its call succeeded.
UPDATE claims SET expires_at = clock_timestamp() + $5::float8 * interval '1 second'
WHERE tenant = $1 AND kind = 'business' AND scope = $2 AND digest = $3 AND decision_id = $4;

-- name: count_call_in_run
-- Open the run with its first call or count one more; no row where the run belongs to another workflow or subject.
INSERT INTO runs (tenant, agent, run_id, workflow, subject, calls, failures) VALUES ($1, $2, $3, $4, $5, 1, 0)
ON CONFLICT (tenant, agent, run_id) DO UPDATE SET calls = runs.calls + 1
WHERE runs.workflow = excluded.workflow AND runs.subject = excluded.subject
RETURNING calls;

-- name: count_failure_in_run
-- One more failed call of the run.
UPDATE runs SET failures = failures + 1 WHERE tenant = $1 AND agent = $2 AND run_id = $3;

-- name: reserve
-- Hold an amount of a budget; no row where the limit ($6) leaves no room. The caller checked that the amount alone fits.
INSERT INTO budgets (tenant, name, scope, period, reserved, spent) VALUES ($1, $2, $3, $4, $5, 0)
ON CONFLICT (tenant, name, scope, period) DO UPDATE SET reserved = budgets.reserved + excluded.reserved
WHERE budgets.reserved + budgets.spent + excluded.reserved <= $6
RETURNING reserved, spent;

-- name: read_budget
-- What a budget has reserved and spent, for dry runs.
SELECT reserved, spent FROM budgets WHERE tenant = $1 AND name = $2 AND scope = $3 AND period = $4;

-- name: insert_reservation
-- The hold itself, owned by the call.
INSERT INTO reservations (tenant, decision_id, name, scope, period, unit, amount, state) VALUES ($1, $2, $3, $4, $5, $6, $7, 'held');

-- name: held_reservations
-- The holds of a call, in lock order.
SELECT name, scope, period, unit, amount FROM reservations
WHERE tenant = $1 AND decision_id = $2 AND state = 'held' ORDER BY name, scope, period;

-- name: book_budget
-- Turn a hold into spending: $5 leaves reserved, $6 enters spent. Returns what the budget holds now.
UPDATE budgets SET reserved = reserved - $5, spent = spent + $6
WHERE tenant = $1 AND name = $2 AND scope = $3 AND period = $4
RETURNING reserved, spent;

-- name: end_reservation
-- A hold ends exactly once.
UPDATE reservations SET state = $4, settled = $5 WHERE tenant = $1 AND decision_id = $2 AND name = $3 AND state = 'held';

-- name: insert_call
-- An admitted call, running from now on.
INSERT INTO calls (tenant, decision_id, agent, subject, run_id, workflow, tool, fingerprint, state, admitted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'running', clock_timestamp());

-- name: end_call
-- A running call ends; no row where it is not running any more.
UPDATE calls SET state = $3, status = $4, reason_code = $5, answer = $6, finished_at = clock_timestamp()
WHERE tenant = $1 AND decision_id = $2 AND state = 'running'
RETURNING decision_id;

-- name: get_call
-- An admitted call as it stands.
SELECT state, answer FROM calls WHERE tenant = $1 AND decision_id = $2;

-- name: read_facts
-- One snapshot: the run, its last 20 calls, calls of the last 24 hours that may have had an effect, the approval.
SELECT
    (SELECT jsonb_build_object('workflow', workflow, 'subject', subject, 'calls', calls, 'failures', failures)
     FROM runs WHERE tenant = $1 AND agent = $2 AND run_id = $3) AS run,
    (SELECT jsonb_agg(jsonb_build_object('tool', tool, 'state', state, 'status', status, 'reason_code', reason_code, 'at', admitted_at)
                      ORDER BY decision_id)
     FROM (SELECT * FROM calls WHERE tenant = $1 AND agent = $2 AND run_id = $3 ORDER BY decision_id DESC LIMIT 20) AS past) AS history,
    (SELECT jsonb_build_object('count', count(*), 'last_at', max(admitted_at),
                               'last_state', (array_agg(state ORDER BY decision_id DESC))[1],
                               'last_status', (array_agg(status ORDER BY decision_id DESC))[1])
     FROM (SELECT * FROM calls WHERE tenant = $1 AND subject = $4 AND tool = $5
           AND admitted_at > clock_timestamp() - interval '24 hours'
           AND state IN ('running', 'pending_client', 'in_doubt', 'succeeded') ORDER BY admitted_at DESC LIMIT 1000) AS recent) AS same_tool,
    (SELECT jsonb_build_object('count', count(*), 'last_at', max(admitted_at),
                               'last_state', (array_agg(state ORDER BY decision_id DESC))[1],
                               'last_status', (array_agg(status ORDER BY decision_id DESC))[1])
     FROM (SELECT * FROM calls WHERE tenant = $1 AND subject = $4 AND tool = $5 AND fingerprint = $6
           AND admitted_at > clock_timestamp() - interval '24 hours'
           AND state IN ('running', 'pending_client', 'in_doubt', 'succeeded') ORDER BY admitted_at DESC LIMIT 1000) AS recent) AS same_call,
    (SELECT jsonb_build_object('approval_id', approval_id, 'state', state, 'effect_hash', encode(effect_hash, 'hex'), 'rule', rule,
                               'summary', summary, 'expires_at', expires_at, 'is_expired', expires_at <= clock_timestamp())
     FROM approvals WHERE tenant = $1 AND approval_id = $7 AND agent = $2) AS approval,
    (SELECT jsonb_build_object('decision_id', claims.decision_id, 'fingerprint', encode(claims.fingerprint, 'hex'),
                               'is_expired', coalesce(claims.expires_at <= clock_timestamp(), false),
                               'state', calls.state, 'agent', calls.agent, 'subject', calls.subject, 'tool', calls.tool,
                               'answer', encode(calls.answer, 'base64'))
     FROM claims JOIN calls USING (tenant, decision_id)
     WHERE claims.tenant = $1 AND claims.kind = 'business' AND claims.scope = $5 AND claims.digest = $8) AS business;

-- name: expire_approval
-- A pending approval of this call that ran out no longer stands in the way of a new one.
UPDATE approvals SET state = 'expired' WHERE tenant = $1 AND effect_hash = $2 AND state = 'pending' AND expires_at <= clock_timestamp();

-- name: open_approval
-- Ask a person about one exact call; one pending approval per effect hash, the standing one comes back.
INSERT INTO approvals AS standing (tenant, approval_id, effect_hash, state, decision_id, agent, subject, run_id, workflow, tool, tool_digest,
                                   rule, permission, summary, arguments, requested_at, expires_at)
VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
        clock_timestamp(), clock_timestamp() + $15::float8 * interval '1 second')
ON CONFLICT (tenant, effect_hash) WHERE state = 'pending' DO UPDATE SET tenant = standing.tenant
RETURNING approval_id, expires_at, summary;

-- name: get_approval
-- An approval as an answer on its call tells it.
SELECT approval_id, expires_at, summary FROM approvals WHERE tenant = $1 AND approval_id = $2;

-- name: extend_log
-- The next position of the tenant's log and its time; the last lock of every transaction.
UPDATE log_heads SET size = size + 1 WHERE tenant = $1 RETURNING size - 1 AS position, clock_timestamp() AS at;

-- name: insert_record
-- A record with its exact bytes.
INSERT INTO records (tenant, decision_id, position, kind, at, about, agent, subject, run_id, workflow, tool, effect, reason_code, status, body, leaf)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: insert_payload
-- What is kept beside a record, already redacted.
INSERT INTO payloads (tenant, decision_id, kind, body) VALUES ($1, $2, $3, $4);

-- name: get_record
-- One record of this tenant.
SELECT body FROM records WHERE tenant = $1 AND decision_id = $2;

-- name: linked_records
-- What belongs to a decision: outcomes and replays, oldest first.
SELECT body FROM records WHERE tenant = $1 AND about = $2 ORDER BY position LIMIT 100;

-- name: get_payloads
-- Redacted payloads of a decision and of what is linked to it.
SELECT payloads.kind, payloads.body FROM payloads
WHERE tenant = $1 AND decision_id IN (SELECT $2::uuid UNION ALL SELECT decision_id FROM records WHERE tenant = $1 AND about = $2);

-- name: find_records
-- A page of records, newest first. Null filters hold for all.
SELECT position, body FROM records
WHERE tenant = $1 AND ($2::bigint IS NULL OR position < $2)
  AND ($3::timestamptz IS NULL OR at >= $3) AND ($4::timestamptz IS NULL OR at < $4)
  AND ($5::text[] IS NULL OR kind = ANY ($5)) AND ($6::text[] IS NULL OR agent = ANY ($6)) AND ($7::text[] IS NULL OR subject = ANY ($7))
  AND ($8::text[] IS NULL OR run_id = ANY ($8)) AND ($9::text[] IS NULL OR workflow = ANY ($9)) AND ($10::text[] IS NULL OR tool = ANY ($10))
  AND ($11::text[] IS NULL OR effect = ANY ($11)) AND ($12::text[] IS NULL OR reason_code = ANY ($12)) AND ($13::text[] IS NULL OR status = ANY ($13))
ORDER BY position DESC LIMIT $14;
