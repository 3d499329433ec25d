-- Every statement of the ledger, each named and described. `gateway.ledger.database` reads this file.
-- Statements on many rows take arrays and lock in the order of their keys: one lock order for all writers.

-- name: read_installation
-- Whether the database was made by --dev; no row on a fresh one.
SELECT is_dev FROM installation;

-- name: mark_installation
-- Say once by whom the database was made.
INSERT INTO installation (is_dev) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: read_control
-- The revision in force, without a lock.
SELECT revision, epoch, digest_key FROM controls WHERE tenant = $1;

-- name: lock_control
-- The revision in force, locked against everybody until this transaction ends.
SELECT revision, epoch, digest_key FROM controls WHERE tenant = $1 FOR UPDATE;

-- name: insert_control
-- The first activation of a tenant. Loses silently to a concurrent one; lock_control then tells.
INSERT INTO controls (tenant, revision, epoch, digest_key) VALUES ($1, '', 0, $2) ON CONFLICT (tenant) DO NOTHING;

-- name: update_control
-- Put a revision in force under a new epoch.
UPDATE controls SET revision = $2, epoch = epoch + 1 WHERE tenant = $1 RETURNING epoch;

-- name: insert_log_head
-- A tenant's log starts at size 0.
INSERT INTO log_heads (tenant, size) VALUES ($1, 0) ON CONFLICT (tenant) DO NOTHING;

-- name: raise_epoch
-- Whatever was decided before is decided anew.
UPDATE controls SET epoch = epoch + 1 WHERE tenant = $1 RETURNING epoch;

-- name: read_controls
-- What is in force for every tenant that ever had a revision.
SELECT tenant, revision, epoch, digest_key FROM controls WHERE revision <> '';

-- name: read_in_force
-- What is in force for one tenant, with its restrictions, in one snapshot; without files for who knows this epoch already.
SELECT controls.revision, controls.epoch, controls.digest_key,
       CASE WHEN controls.epoch IS DISTINCT FROM $2::bigint THEN coalesce(revisions.files, '') ELSE '' END AS files,
       ARRAY (SELECT kind || ' ' || name FROM restrictions WHERE restrictions.tenant = controls.tenant
              UNION ALL SELECT 'key ' || key_id FROM keys
              WHERE keys.tenant = controls.tenant AND revoked_at > clock_timestamp() - interval '1 hour') AS restrictions
FROM controls LEFT JOIN revisions USING (tenant, revision) WHERE tenant = $1 AND revision <> '';

-- name: find_key
-- What a live key opens, by its digest.
SELECT tenant, key_id, roles, agent, person, label FROM keys
WHERE digest = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: insert_key
-- A new key, live from now on, for some seconds or until it is revoked.
INSERT INTO keys (tenant, key_id, family, digest, hint, roles, agent, person, label, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp() + $11::float8 * interval '1 second');

-- name: lock_key
-- A key that is about to be rotated or revoked.
SELECT family, roles, agent, person, label,
       revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS is_live,
       extract(epoch FROM expires_at - created_at)::float8 AS ttl_s
FROM keys WHERE tenant = $1 AND key_id = $2 FOR UPDATE;

-- name: count_live_keys
-- Live keys of one family.
SELECT count(*) FROM keys
WHERE tenant = $1 AND family = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: expire_key
-- A rotated key ends after some seconds, or when it would have ended anyway.
UPDATE keys SET expires_at = least(expires_at, clock_timestamp() + $3::float8 * interval '1 second') WHERE tenant = $1 AND key_id = $2;

-- name: revoke_key
-- It opens nothing from now on; true where it was not revoked before.
UPDATE keys SET revoked_at = clock_timestamp(), revoked_by = $3 WHERE tenant = $1 AND key_id = $2 AND revoked_at IS NULL RETURNING true;

-- name: list_keys
-- Keys of a tenant, oldest first; never their digests.
SELECT key_id, hint, roles, agent, person, label, created_by, created_at, expires_at, revoked_by, revoked_at,
       revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS is_live
FROM keys WHERE tenant = $1 AND ($2::uuid IS NULL OR key_id > $2) ORDER BY key_id LIMIT $3;

-- name: insert_revision
-- Keep the files of a revision for as long as calls may have to be resolved with them. Pushing it again changes nothing.
INSERT INTO revisions (tenant, revision, files, name, note, pushed_by) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING;

-- name: get_revision
-- The files of a revision.
SELECT files FROM revisions WHERE tenant = $1 AND revision = $2;

-- name: list_revisions
-- Revisions with their last activation, newest first; one of them where it is named.
SELECT revisions.revision, name, note, pushed_by, pushed_at, last.activated_at, last.activated_by,
       coalesce(controls.revision = revisions.revision, false) AS is_active
FROM revisions LEFT JOIN controls USING (tenant)
LEFT JOIN LATERAL (SELECT activated_at, activated_by FROM activations
                   WHERE activations.tenant = revisions.tenant AND activations.revision = revisions.revision
                   ORDER BY epoch DESC LIMIT 1) AS last ON true
WHERE revisions.tenant = $1 AND ($2::text IS NULL OR revisions.revision = $2)
  AND ($3::timestamptz IS NULL OR (pushed_at, revisions.revision) < ($3, $4::text))
ORDER BY pushed_at DESC, revisions.revision DESC LIMIT $5;

-- name: insert_activation
-- What was put in force under which epoch.
INSERT INTO activations (tenant, epoch, revision, activated_by) VALUES ($1, $2, $3, $4);

-- name: revision_before
-- The last other revision that was in force.
SELECT activations.revision FROM activations JOIN controls USING (tenant)
WHERE tenant = $1 AND activations.revision <> controls.revision ORDER BY activations.epoch DESC LIMIT 1;

-- name: insert_restriction
-- Take something out of service; true where it was in service.
INSERT INTO restrictions (tenant, kind, name, reason, restricted_by) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING true;

-- name: delete_restriction
-- Put it back into service; true where it was out of it.
DELETE FROM restrictions WHERE tenant = $1 AND kind = $2 AND name = $3 RETURNING true;

-- name: list_restrictions
-- What is out of service, and why.
SELECT kind, name, reason, restricted_by, restricted_at FROM restrictions WHERE tenant = $1 ORDER BY kind, name;

-- name: take_claims
-- Take free claims and lock the ones that stand, in key order: every row comes back with whoever holds it.
INSERT INTO claims AS held (tenant, kind, scope, digest, fingerprint, decision_id, expires_at)
SELECT $1, kind, scope, digest, fingerprint, decision_id, clock_timestamp() + ttl_s * interval '1 second' FROM unnest($2::claim_wanted[])
ORDER BY kind, scope, digest
ON CONFLICT (tenant, kind, scope, digest) DO UPDATE SET tenant = held.tenant
RETURNING kind, scope, digest, decision_id;

-- name: find_holders
-- The calls that hold claims, whatever their state; state is null where the claim's call was never admitted.
SELECT claims.kind, claims.scope, claims.digest,
       claims.decision_id, claims.fingerprint, coalesce(claims.expires_at <= clock_timestamp(), false) AS is_expired,
       calls.state, calls.agent, calls.subject, calls.tool, calls.told, calls.result
FROM unnest($2::claim_key[]) AS wanted
JOIN claims ON claims.tenant = $1 AND claims.kind = wanted.kind AND claims.scope = wanted.scope AND claims.digest = wanted.digest
LEFT JOIN calls ON calls.tenant = claims.tenant AND calls.decision_id = claims.decision_id;

-- name: move_claims
-- Give claims whose holders no longer need them to other decisions. A transport key keeps its first expiry.
UPDATE claims SET decision_id = moved.decision_id, fingerprint = moved.fingerprint,
                  expires_at = CASE claims.kind WHEN 'transport' THEN claims.expires_at END
FROM unnest($2::claim_wanted[]) AS moved
WHERE claims.tenant = $1 AND claims.kind = moved.kind AND claims.scope = moved.scope AND claims.digest = moved.digest;

-- name: end_business_claims
-- A business key holds for its window after its call succeeded.
UPDATE claims SET expires_at = clock_timestamp() + calls.window_s * interval '1 second'
FROM calls
WHERE calls.tenant = $1 AND calls.decision_id = ANY ($2::uuid[])
  AND claims.tenant = calls.tenant AND claims.kind = 'business' AND claims.scope = calls.tool AND claims.digest = calls.business_key
  AND claims.decision_id = calls.decision_id;

-- name: raise_runs
-- Open runs that are new, lock all and raise their counts; then the versions of (subject, tool); each in key order.
WITH run AS (
    INSERT INTO runs AS standing (tenant, agent, run_id, workflow, subject, calls, failures)
    SELECT $1, agent, run_id, workflow, subject, calls, failures FROM unnest($2::run_change[])
    ORDER BY agent, run_id
    ON CONFLICT (tenant, agent, run_id)
    DO UPDATE SET calls = standing.calls + excluded.calls, failures = standing.failures + excluded.failures
    RETURNING agent, run_id, workflow, subject, calls, failures, cancelled_at IS NOT NULL AS is_cancelled
), pair AS (
    INSERT INTO subject_tools AS standing (tenant, subject, tool, version)
    SELECT $1, subject, tool, version FROM unnest($3::version_change[]) WHERE (SELECT count(*) FROM run) >= 0
    ORDER BY subject, tool
    ON CONFLICT (tenant, subject, tool) DO UPDATE SET version = standing.version + excluded.version
    RETURNING subject, tool, version
)
SELECT agent, run_id, workflow, subject, NULL AS tool, calls, failures, is_cancelled, NULL::bigint AS version FROM run
UNION ALL SELECT NULL, NULL, NULL, subject, tool, NULL, NULL, NULL, version FROM pair;

-- name: write_runs
-- The counts of locked runs.
UPDATE runs SET calls = counted.calls, failures = counted.failures FROM unnest($2::run_change[]) AS counted
WHERE runs.tenant = $1 AND runs.agent = counted.agent AND runs.run_id = counted.run_id;

-- name: write_subject_tools
-- The versions of locked (subject, tool).
UPDATE subject_tools SET version = raised.version FROM unnest($2::version_change[]) AS raised
WHERE subject_tools.tenant = $1 AND subject_tools.subject = raised.subject AND subject_tools.tool = raised.tool;

-- name: raise_budgets
-- Lock budgets in key order and raise what they have reserved.
INSERT INTO budgets AS standing (tenant, name, scope, period, reserved, spent)
SELECT $1, name, scope, period, reserved, spent FROM unnest($2::budget_change[])
ORDER BY name, scope, period
ON CONFLICT (tenant, name, scope, period)
DO UPDATE SET reserved = standing.reserved + excluded.reserved
RETURNING name, scope, period, reserved, spent;

-- name: write_budgets
-- The amounts of locked budgets.
UPDATE budgets SET reserved = booked.reserved, spent = booked.spent FROM unnest($2::budget_change[]) AS booked
WHERE budgets.tenant = $1 AND budgets.name = booked.name AND budgets.scope = booked.scope AND budgets.period = booked.period;

-- name: lock_rates
-- The arrival times of rates and now, in microseconds of database time, locked in key order.
INSERT INTO rates AS standing (tenant, name, scope, arrival_us)
SELECT $1, name, scope, 0 FROM unnest($2::text[], $3::text[]) AS wanted (name, scope)
ORDER BY name, scope
ON CONFLICT (tenant, name, scope) DO UPDATE SET tenant = standing.tenant
RETURNING name, scope, arrival_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us;

-- name: write_rates
-- The arrival times of locked rates.
UPDATE rates SET arrival_us = moved.arrival_us
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS moved (name, scope, arrival_us)
WHERE rates.tenant = $1 AND rates.name = moved.name AND rates.scope = moved.scope;

-- name: read_budget
-- What a budget has reserved and spent, for dry runs.
SELECT reserved, spent FROM budgets WHERE tenant = $1 AND name = $2 AND scope = $3 AND period = $4;

-- name: insert_calls
-- Admitted calls, running under their leases from now on, or handed out to their clients until the lease is over; and what they hold.
WITH admitted AS (
    INSERT INTO calls (tenant, decision_id, agent, subject, run_id, workflow, tool, fingerprint, state, admitted_at,
                       told, risk, replay, lease_s, lease_until, invocation, business_key, window_s, tool_ordinal)
    SELECT $1, decision_id, agent, subject, run_id, workflow, tool, fingerprint, state, clock_timestamp(),
           told, risk, replay, lease_s, clock_timestamp() + lease_s * interval '1 second', invocation, business_key, window_s, tool_ordinal
    FROM unnest($2::admitted_call[])
)
INSERT INTO reservations (tenant, decision_id, name, scope, period, unit, amount, state)
SELECT $1, decision_id, name, scope, period, unit, amount, 'held' FROM unnest($3::new_hold[]);

-- name: lock_calls
-- Calls that are about to end, locked in key order, and what they hold; then the control row, where something is to be admitted:
-- an activation waits for us, other batches do not.
WITH call AS MATERIALIZED (
    SELECT decision_id, state, fence, is_resolving, agent, run_id, tool, business_key, fingerprint, lease_until <= clock_timestamp() AS is_late
    FROM calls
    WHERE tenant = $1 AND decision_id = ANY ($2::uuid[]) ORDER BY decision_id FOR UPDATE
), held AS MATERIALIZED (
    SELECT reservations.decision_id, name, scope, period, unit, amount FROM call, reservations
    WHERE reservations.tenant = $1 AND reservations.decision_id = call.decision_id AND reservations.state = 'held'
    FOR UPDATE OF reservations
), control AS MATERIALIZED (
    SELECT revision, epoch FROM controls WHERE tenant = $1 AND $3 AND (SELECT count(*) FROM held) >= 0 FOR SHARE
)
SELECT 'call' AS part, decision_id, state, fence, is_resolving, agent, run_id, tool, business_key, fingerprint, is_late,
       NULL AS name, NULL AS scope, NULL AS period, NULL AS unit, NULL AS amount, NULL AS revision, NULL::bigint AS epoch
FROM call
UNION ALL
SELECT 'held', decision_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, name, scope, period, unit, amount, NULL, NULL FROM held
UNION ALL
SELECT 'control', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, revision, epoch FROM control;

-- name: end_calls
-- The ends of locked calls and of their holds, each exactly once. A doubt stays due; whatever is over gives up what a resolver
-- would have needed.
WITH over AS (
    UPDATE calls SET state = ended.state, status = ended.status, reason_code = ended.reason_code, result = ended.result,
                     attempts = ended.attempts, is_resolving = false, finished_at = clock_timestamp(),
                     due_at = CASE WHEN ended.state = 'in_doubt' AND calls.replay <> 'never' THEN clock_timestamp() END,
                     invocation = CASE WHEN ended.state = 'in_doubt' THEN calls.invocation END
    FROM unnest($2::ended_call[]) AS ended
    WHERE calls.tenant = $1 AND calls.decision_id = ended.decision_id
)
UPDATE reservations SET state = ended.state, settled = ended.settled
FROM unnest($3::ended_hold[]) AS ended
WHERE reservations.tenant = $1 AND reservations.decision_id = ended.decision_id AND reservations.name = ended.name AND reservations.state = 'held';

-- name: get_call
-- An admitted call as it stands.
SELECT state, told, result, invocation, lease_until FROM calls WHERE tenant = $1 AND decision_id = $2;

-- name: expired_calls
-- Calls that run, or that a client performs, whose lease is over: also one lease after the database came back, since nobody
-- could end them meanwhile.
SELECT decision_id, risk, fence, state, lease_until FROM calls
WHERE tenant = $1 AND state = 'running' AND lease_until < clock_timestamp()
  AND pg_postmaster_start_time() + lease_s * interval '1 second' < clock_timestamp()
UNION ALL
SELECT decision_id, risk, fence, state, lease_until FROM calls
WHERE tenant = $1 AND state = 'pending_client' AND lease_until < clock_timestamp()
  AND pg_postmaster_start_time() + lease_s * interval '1 second' < clock_timestamp()
ORDER BY lease_until LIMIT $2;

-- name: take_doubts
-- Doubts that are due, taken over under a new fence; nobody else looks at them for the given seconds.
UPDATE calls SET fence = fence + 1, is_resolving = true, attempts = attempts + 1,
                 due_at = clock_timestamp() + (lease_s + $3::float8) * interval '1 second'
WHERE (tenant, decision_id) IN (
    SELECT tenant, decision_id FROM calls WHERE tenant = $1 AND state = 'in_doubt' AND due_at <= clock_timestamp()
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING decision_id, fence, attempts, replay, invocation, admitted_at, lease_until,
          extract(epoch FROM clock_timestamp() - admitted_at)::float8 AS age_s, agent, subject, run_id, tool;

-- name: postpone_doubt
-- A resolver that learned nothing gives the doubt back; null leaves it to a person.
UPDATE calls SET due_at = clock_timestamp() + $4::float8 * interval '1 second', is_resolving = false
WHERE tenant = $1 AND decision_id = $2 AND fence = $3 AND state = 'in_doubt';

-- name: list_calls
-- Calls in a state, oldest first.
SELECT decision_id, state, status, reason_code, agent, subject, run_id, workflow, tool, replay, admitted_at, lease_until, finished_at, attempts
FROM calls WHERE tenant = $1 AND state = $2 AND ($3::uuid IS NULL OR decision_id > $3) ORDER BY decision_id LIMIT $4;

-- name: list_budgets
-- Budgets that were ever drawn on.
SELECT name, scope, period, reserved, spent FROM budgets
WHERE tenant = $1 AND ($2::text IS NULL OR (name, scope, period) > ($2, $3::text, $4::text)) ORDER BY name, scope, period LIMIT $5;

-- name: read_facts
-- One snapshot for all calls that ask: the calls behind both identities, the run, its last 20 calls, calls of the last 24
-- hours that may have had an effect (of equal input: at most 100), failures of the same input in this run, the approval, and
-- the versions of all that. The tool's count is a difference of ordinals, less the calls without effect (at most 1000): however
-- many there were, a few index entries tell.
SELECT asked.place,
       run.workflow AS run_workflow, run.subject AS run_subject, run.calls AS run_calls, run.failures AS run_failures,
       run.cancelled_at IS NOT NULL AS run_is_cancelled,
       pair.version AS tool_version,
       past.tools, past.states, past.statuses, past.reason_codes, past.times,
       pair.version - first.tool_ordinal + 1 - void.count AS tool_count,
       last.admitted_at AS tool_last_at, last.state AS tool_last_state, last.status AS tool_last_status,
       equal.count AS input_count, equal.last_at AS input_last_at, equal.last_state AS input_last_state, equal.last_status AS input_last_status,
       failed.count AS input_failures,
       approval.approval_id, approval.state AS approval_state, approval.effect_hash, approval.rule, approval.summary, approval.expires_at,
       approval.is_expired AS approval_is_expired, approval.suggested_args, approval.agreed, approval.comment,
       business.*, transport.*
FROM unnest($2::facts_question[]) AS asked
LEFT JOIN LATERAL (SELECT workflow, subject, calls, failures, cancelled_at FROM runs
                   WHERE tenant = $1 AND agent = asked.agent AND run_id = asked.run_id LIMIT 1) AS run ON true
LEFT JOIN LATERAL (SELECT version FROM subject_tools
                   WHERE tenant = $1 AND subject = asked.subject AND tool = asked.tool LIMIT 1) AS pair ON true
LEFT JOIN LATERAL (
    SELECT array_agg(tool) AS tools, array_agg(state) AS states, array_agg(status) AS statuses, array_agg(reason_code) AS reason_codes,
           array_agg(admitted_at) AS times
    FROM (SELECT tool, state, status, reason_code, admitted_at FROM calls
          WHERE tenant = $1 AND agent = asked.agent AND run_id = asked.run_id ORDER BY decision_id DESC LIMIT 20) AS latest) AS past ON true
LEFT JOIN LATERAL (SELECT tool_ordinal FROM calls
                   WHERE tenant = $1 AND subject = asked.subject AND tool = asked.tool AND tool_ordinal IS NOT NULL
                     AND admitted_at > now() - interval '24 hours' ORDER BY admitted_at LIMIT 1) AS first ON true
LEFT JOIN LATERAL (
    SELECT count(*) FROM (SELECT FROM calls
                          WHERE tenant = $1 AND subject = asked.subject AND tool = asked.tool AND tool_ordinal IS NOT NULL
                            AND state IN ('open', 'failed') AND admitted_at > now() - interval '24 hours' LIMIT 1000) AS ended) AS void ON true
LEFT JOIN LATERAL (SELECT admitted_at, state, status FROM calls
                   WHERE tenant = $1 AND subject = asked.subject AND tool = asked.tool AND tool_ordinal IS NOT NULL
                     AND admitted_at > now() - interval '24 hours' AND state IN ('running', 'pending_client', 'in_doubt', 'succeeded')
                   ORDER BY admitted_at DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS count, max(admitted_at) AS last_at, (array_agg(state))[1] AS last_state, (array_agg(status))[1] AS last_status
    FROM (SELECT admitted_at, state, status FROM calls
          WHERE tenant = $1 AND fingerprint = asked.fingerprint AND admitted_at > now() - interval '24 hours'
            AND state IN ('running', 'pending_client', 'in_doubt', 'succeeded')
          ORDER BY admitted_at DESC LIMIT 100) AS twins) AS equal ON true
LEFT JOIN LATERAL (
    SELECT count(*) FROM (SELECT FROM calls
                          WHERE tenant = $1 AND agent = asked.agent AND run_id = asked.run_id AND fingerprint = asked.fingerprint
                            AND (state = 'failed' OR reason_code IN ('EXECUTION_TEMPORARY', 'EXECUTION_TIMEOUT')) LIMIT 100) AS ended
    ) AS failed ON true
LEFT JOIN LATERAL (SELECT approval_id, state, effect_hash, rule, summary, expires_at, expires_at <= clock_timestamp() AS is_expired,
                          suggested_args,
                          (SELECT count(*) FROM approval_answers AS given WHERE given.tenant = approvals.tenant
                           AND given.approval_id = approvals.approval_id AND given.answer = 'approve') AS agreed,
                          (SELECT comment FROM approval_answers AS given WHERE given.tenant = approvals.tenant
                           AND given.approval_id = approvals.approval_id AND given.answer = 'deny') AS comment
                   FROM approvals WHERE tenant = $1 AND approval_id = asked.approval_id AND agent = asked.agent LIMIT 1) AS approval ON true
LEFT JOIN LATERAL (
    SELECT claims.decision_id AS business_decision_id, claims.fingerprint AS business_fingerprint,
           coalesce(claims.expires_at <= clock_timestamp(), false) AS business_is_expired,
           calls.state AS business_state, calls.agent AS business_agent, calls.subject AS business_subject, calls.tool AS business_tool,
           calls.told AS business_told, calls.result AS business_result
    FROM claims JOIN calls USING (tenant, decision_id)
    WHERE claims.tenant = $1 AND claims.kind = 'business' AND claims.scope = asked.tool AND claims.digest = asked.business_key
    LIMIT 1) AS business ON true
LEFT JOIN LATERAL (
    SELECT claims.decision_id AS transport_decision_id, claims.fingerprint AS transport_fingerprint,
           coalesce(claims.expires_at <= clock_timestamp(), false) AS transport_is_expired,
           calls.state AS transport_state, calls.agent AS transport_agent, calls.subject AS transport_subject, calls.tool AS transport_tool,
           calls.told AS transport_told, calls.result AS transport_result
    FROM claims LEFT JOIN calls USING (tenant, decision_id)
    WHERE claims.tenant = $1 AND claims.kind = 'transport' AND claims.scope = asked.agent AND claims.digest = asked.transport_key
    LIMIT 1) AS transport ON true;

-- name: lock_approvals
-- Approvals that a batch uses, gives back or meets, locked in key order: by id, by the call that uses them, standing ones by effect.
SELECT approval_id, state, effect_hash, consumed_by, decision_id, expires_at, summary, expires_at <= clock_timestamp() AS is_expired
FROM approvals
WHERE tenant = $1 AND (approval_id = ANY ($2::uuid[]) OR consumed_by = ANY ($3::uuid[])
                       OR (effect_hash = ANY ($4::bytea[]) AND state IN ('pending', 'granted')))
ORDER BY approval_id FOR UPDATE;

-- name: consume_approvals
-- Grants become the ones of the calls that use them.
UPDATE approvals SET state = 'consumed', consumed_by = used.decision_id
FROM unnest($2::uuid[], $3::uuid[]) AS used (approval_id, decision_id)
WHERE approvals.tenant = $1 AND approvals.approval_id = used.approval_id;

-- name: restore_approvals
-- Grants whose calls had no effect hold again.
UPDATE approvals SET state = 'granted', consumed_by = NULL WHERE tenant = $1 AND approval_id = ANY ($2::uuid[]);

-- name: expire_approvals
-- Locked approvals whose time is over no longer stand in the way of new ones.
UPDATE approvals SET state = 'expired' WHERE tenant = $1 AND approval_id = ANY ($2::uuid[]);

-- name: take_expired_approvals
-- Silence is a no, and an unused yes ends; locked in key order, whoever else looks at the same time takes others.
SELECT approval_id, state, decision_id FROM approvals
WHERE tenant = $1 AND state IN ('pending', 'granted') AND expires_at <= clock_timestamp()
ORDER BY approval_id LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: open_approvals
-- Ask a person about one exact call each; at most one pending approval per effect, in the order of effects.
INSERT INTO approvals (tenant, approval_id, effect_hash, state, decision_id, agent, subject, run_id, workflow, tool, tool_digest, revision,
                       rule, permission, valid_for_s, summary, request, requested_at, expires_at)
SELECT $1, decision_id, effect_hash, 'pending', decision_id, agent, subject, run_id, workflow, tool, tool_digest, revision,
       rule, permission, valid_for_s, summary, request, clock_timestamp(), clock_timestamp() + valid_for_s * interval '1 second'
FROM unnest($2::uuid[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
            $12::text[], $13::float8[], $14::text[], $15::bytea[])
     AS asked (decision_id, effect_hash, agent, subject, run_id, workflow, tool, tool_digest, revision, rule, permission, valid_for_s, summary, request)
ORDER BY effect_hash
ON CONFLICT (tenant, effect_hash) WHERE state = 'pending' DO NOTHING;

-- name: pending_approvals
-- The pending approvals of effects.
SELECT approval_id, effect_hash, expires_at, summary FROM approvals
WHERE tenant = $1 AND effect_hash = ANY ($2::bytea[]) AND state = 'pending';

-- name: get_approval_fact
-- An approval as its agent's calls meet it.
SELECT approval_id, state, effect_hash, rule, summary, expires_at, expires_at <= clock_timestamp() AS is_expired, suggested_args,
       (SELECT count(*) FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id
        AND given.answer = 'approve') AS agreed,
       (SELECT comment FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id
        AND given.answer = 'deny') AS comment
FROM approvals WHERE tenant = $1 AND approval_id = $2;

-- name: standing_approval
-- The approval that stands for an effect, for a call that names none: a no in the same run, else what is pending or granted.
SELECT approval_id, state, effect_hash, rule, summary, expires_at, false AS is_expired, suggested_args,
       (SELECT count(*) FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id
        AND given.answer = 'approve') AS agreed,
       (SELECT comment FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id
        AND given.answer = 'deny') AS comment
FROM approvals
WHERE tenant = $1 AND effect_hash = $2 AND expires_at > clock_timestamp()
  AND (state IN ('pending', 'granted') OR (state = 'denied' AND run_id = $3))
ORDER BY state = 'denied' DESC, approval_id DESC LIMIT 1;

-- name: lock_approval
-- An approval that a person is about to answer, against everybody else who does.
SELECT state, expires_at <= clock_timestamp() AS is_expired, rule, decision_id FROM approvals
WHERE tenant = $1 AND approval_id = $2 FOR UPDATE;

-- name: insert_answer
-- One person's answer; a second one of the same person changes nothing.
INSERT INTO approval_answers (tenant, approval_id, person, answer, comment, at) VALUES ($1, $2, $3, $4, $5, clock_timestamp())
ON CONFLICT DO NOTHING RETURNING person;

-- name: count_agreed
-- How many persons have said yes.
SELECT count(*) FROM approval_answers WHERE tenant = $1 AND approval_id = $2 AND answer = 'approve';

-- name: end_approval
-- What the answers make of an approval; the yes and the no hold from now on.
UPDATE approvals SET state = $3, suggested_args = $4, expires_at = clock_timestamp() + valid_for_s * interval '1 second'
WHERE tenant = $1 AND approval_id = $2;

-- name: get_approval
-- An approval as people see it.
SELECT approval_id, state, expires_at <= clock_timestamp() AS is_expired, rule, permission, agent, subject, workflow, run_id, tool,
       tool_digest, revision, effect_hash, summary, request, requested_at, expires_at, consumed_by, suggested_args,
       (SELECT jsonb_agg(jsonb_build_object('person', person, 'answer', answer, 'comment', comment, 'at', at) ORDER BY at)
        FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id) AS answers
FROM approvals WHERE tenant = $1 AND approval_id = $2;

-- name: list_approvals
-- Approvals that a person may answer or could have: by their permissions, and their own under the rule `self`. Oldest first.
SELECT approval_id, state, expires_at <= clock_timestamp() AS is_expired, rule, permission, agent, subject, workflow, run_id, tool,
       tool_digest, revision, effect_hash, summary, request, requested_at, expires_at, consumed_by, suggested_args,
       (SELECT jsonb_agg(jsonb_build_object('person', person, 'answer', answer, 'comment', comment, 'at', at) ORDER BY at)
        FROM approval_answers AS given WHERE given.tenant = approvals.tenant AND given.approval_id = approvals.approval_id) AS answers
FROM approvals
WHERE tenant = $1 AND ($2 = 'expired' AND state = 'expired' OR state = $2 AND (state NOT IN ('pending', 'granted') OR expires_at > clock_timestamp()))
  AND ((rule <> 'self' AND permission = ANY ($3::text[])) OR (rule = 'self' AND subject = $4))
  AND ($5::uuid IS NULL OR approval_id > $5)
ORDER BY approval_id LIMIT $6;

-- name: extend_log
-- The next $2 positions of the tenant's log and their time; the last lock of every transaction.
UPDATE log_heads SET size = size + $2 WHERE tenant = $1 RETURNING size - $2 AS position, clock_timestamp() AS at;

-- name: insert_records
-- Records with their exact bytes.
INSERT INTO records (tenant, decision_id, position, kind, at, about, agent, subject, run_id, workflow, tool, effect, reason_code, status,
                     stage, risk, words, body, leaf)
SELECT $1, * FROM unnest($2::new_record[]);

-- name: read_log_size
-- How many records a tenant's log has; the next one gets this position.
SELECT size FROM log_heads WHERE tenant = $1;

-- name: insert_payloads
-- What is kept beside records, already redacted and sealed.
INSERT INTO payloads (tenant, decision_id, kind, body, key_id) SELECT $1, * FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::bytea[]);

-- name: get_record
-- One record of this tenant.
SELECT body FROM records WHERE tenant = $1 AND decision_id = $2;

-- name: get_records
-- Records of this tenant by id.
SELECT decision_id, body FROM records WHERE tenant = $1 AND decision_id = ANY ($2::uuid[]);

-- name: linked_records
-- What belongs to a decision and to the approval that it used: what came of it, then at most 100 of the times it was answered again.
SELECT body FROM records WHERE tenant = $1 AND about = ANY ($2::uuid[]) ORDER BY kind = 'replay', position LIMIT 100;

-- name: get_payloads
-- Redacted payloads of a decision and of what is linked to it.
SELECT payloads.decision_id, payloads.kind, payloads.body, payloads.key_id FROM payloads
WHERE tenant = $1 AND decision_id IN (SELECT $2::uuid UNION ALL SELECT decision_id FROM records WHERE tenant = $1 AND about = $2);

-- name: cancel_run
-- No further call of a run is admitted, whether it had any or not; true where it was not cancelled before.
INSERT INTO runs AS standing (tenant, agent, run_id, workflow, subject, calls, failures, cancelled_at)
VALUES ($1, $2, $3, '', '', 0, 0, clock_timestamp())
ON CONFLICT (tenant, agent, run_id) DO UPDATE SET cancelled_at = clock_timestamp() WHERE standing.cancelled_at IS NULL
RETURNING true;

-- name: get_plain_run
-- A run as its calls made it.
SELECT workflow, subject, calls, failures, cancelled_at FROM runs WHERE tenant = $1 AND agent = $2 AND run_id = $3;

-- name: insert_model_run
-- A run with a loop of ours, held from the start. No row where its start key is taken.
INSERT INTO model_runs (tenant, agent, run_id, workflow, subject, model, prompt, context, bounds, start_key, request_digest,
                        state, started_at, ends_by, lease_until, fence, events)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'running', clock_timestamp(), clock_timestamp() + $12::float8 * interval '1 second',
        clock_timestamp() + $13::float8 * interval '1 second', 1, 1)
ON CONFLICT (tenant, agent, start_key) WHERE start_key IS NOT NULL DO NOTHING
RETURNING run_id;

-- name: find_started_run
-- The run that a start key started.
SELECT run_id, request_digest FROM model_runs WHERE tenant = $1 AND agent = $2 AND start_key = $3;

-- name: take_due_runs
-- Take over runs whose lease is over, under a new fence.
UPDATE model_runs SET fence = fence + 1, lease_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE (tenant, agent, run_id) IN (
    SELECT tenant, agent, run_id FROM model_runs WHERE tenant = $1 AND state = 'running' AND lease_until <= clock_timestamp()
    ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING *, extract(epoch FROM ends_by - clock_timestamp())::float8 AS seconds_left;

-- name: reopen_run
-- Take over one run: where its lease is over, or where it ended resumably, which gives it its whole time again.
UPDATE model_runs SET fence = fence + 1, lease_until = clock_timestamp() + $4::float8 * interval '1 second',
                      state = 'running', reason_code = NULL, is_resumable = false, finished_at = NULL,
                      ends_by = CASE state WHEN 'running' THEN ends_by ELSE clock_timestamp() + (ends_by - started_at) END
WHERE tenant = $1 AND agent = $2 AND run_id = $3
  AND (state = 'running' AND lease_until <= clock_timestamp() OR state = 'failed' AND is_resumable)
RETURNING *, extract(epoch FROM ends_by - clock_timestamp())::float8 AS seconds_left;

-- name: renew_run
-- The holder of the fence goes on.
UPDATE model_runs SET lease_until = clock_timestamp() + $5::float8 * interval '1 second'
WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND fence = $4 AND state = 'running' RETURNING true;

-- name: release_run
-- The holder of the fence gives the run to whoever looks first.
UPDATE model_runs SET lease_until = clock_timestamp() WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND fence = $4 AND state = 'running';

-- name: count_model_call
-- One more request to the model.
UPDATE model_runs SET model_calls = model_calls + 1
WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND fence = $4 AND state = 'running' RETURNING model_calls;

-- name: step_run
-- One step of a run, by the holder of the fence, after exactly the events that it knows of.
UPDATE model_runs SET events = events + $6, turns = turns + $7, tokens = tokens + $8,
                      state = coalesce($9, state), reason_code = $10, is_resumable = $11, answer = $12,
                      finished_at = CASE WHEN $9::text IS NULL THEN NULL ELSE clock_timestamp() END
WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND fence = $4 AND state = 'running' AND events = $5 RETURNING true;

-- name: find_step
-- Whether a step was committed although nobody heard of it.
SELECT true FROM model_runs WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND fence = $4 AND events = $5;

-- name: insert_run_events
-- Events of a run, with the ids that its step took.
INSERT INTO run_events (tenant, agent, run_id, event_id, type, body)
SELECT $1, $2, $3, * FROM unnest($4::bigint[], $5::text[], $6::bytea[]);

-- name: insert_model_turn
-- A turn of the model as it came.
INSERT INTO model_turns (tenant, agent, run_id, turn, response, reply, first_event) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: write_reply
-- What answers a turn.
UPDATE model_turns SET reply = $5 WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND turn = $4;

-- name: get_model_turns
-- The turns of a run, in order.
SELECT turn, response, reply, first_event FROM model_turns WHERE tenant = $1 AND agent = $2 AND run_id = $3 ORDER BY turn;

-- name: get_run_events
-- Events of a run after an id.
SELECT event_id, type, at, body FROM run_events WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND event_id > $4 ORDER BY event_id LIMIT $5;

-- name: get_model_run
-- A run with a loop of ours.
SELECT * FROM model_runs WHERE tenant = $1 AND agent = $2 AND run_id = $3;

-- name: list_model_runs
-- An agent's runs with a loop of ours, newest first.
SELECT * FROM model_runs
WHERE tenant = $1 AND agent = $2 AND ($3::text IS NULL OR state = $3) AND ($4::timestamptz IS NULL OR (started_at, run_id) < ($4, $5::text))
ORDER BY started_at DESC, run_id DESC LIMIT $6;

-- name: cancel_model_run
-- A cancelled run ends at once, whoever holds it; its last event comes with it.
UPDATE model_runs SET state = 'cancelled', reason_code = 'RUN_CANCELLED', finished_at = clock_timestamp(), fence = fence + 1, events = events + 1
WHERE tenant = $1 AND agent = $2 AND run_id = $3 AND state = 'running' RETURNING events;

-- name: kept_approvals
-- The approvals that were asked for refused calls, by their transport keys.
SELECT claims.digest, records.body FROM claims JOIN records USING (tenant, decision_id)
WHERE claims.tenant = $1 AND claims.kind = 'transport' AND claims.scope = $2 AND claims.digest = ANY ($3::bytea[]);

-- name: waiting_approvals
-- Which approvals still wait for a person.
SELECT approval_id FROM approvals WHERE tenant = $1 AND approval_id = ANY ($2::uuid[]) AND state = 'pending' AND expires_at > clock_timestamp();

-- name: call_states
-- How admitted calls stand, and which doubts a resolver will look at by itself.
SELECT decision_id, state, due_at IS NOT NULL AS is_due FROM calls WHERE tenant = $1 AND decision_id = ANY ($2::uuid[]);

-- name: read_installation_keys
-- What this installation is called in its logs, and which key signs them.
SELECT log_id::text, signing_key FROM installation;

-- name: pin_signing_key
-- Say once which key signs the logs of this installation.
UPDATE installation SET signing_key = $1 WHERE signing_key IS NULL;

-- name: add_record_partitions
-- Partitions for this month and the next ones, where they are missing.
SELECT add_record_partitions($1);

-- name: lead_signing
-- Whether this transaction is the log's only signer, until it ends.
SELECT pg_try_advisory_xact_lock(hashtextextended($1, 7023144908));

-- name: read_checkpoint
-- The last checkpoint, how long the log is by now, and since when there are records that it does not cover.
SELECT log_heads.size AS log_size, signed.size, signed.peaks, signed.note, signed.published_at, signed.alarm,
       (SELECT at FROM records WHERE tenant = $1 AND position = coalesce(signed.size, 0)) AS uncovered_since,
       clock_timestamp() AS now
FROM log_heads LEFT JOIN log_checkpoints AS signed USING (tenant) WHERE tenant = $1;

-- name: write_checkpoint
-- The checkpoint that was just published.
INSERT INTO log_checkpoints (tenant, size, peaks, note, published_at) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (tenant) DO UPDATE SET size = excluded.size, peaks = excluded.peaks, note = excluded.note, published_at = excluded.published_at, alarm = NULL;

-- name: write_alarm
-- Why nothing is signed at the moment; null once it is again.
INSERT INTO log_checkpoints (tenant, size, peaks, note, published_at, alarm) VALUES ($1, 0, '', '', '-infinity', $2)
ON CONFLICT (tenant) DO UPDATE SET alarm = excluded.alarm;

-- name: records_from
-- Stored records in order of their positions.
SELECT position, body, leaf FROM records WHERE tenant = $1 AND position >= $2 ORDER BY position LIMIT $3;

-- name: insert_nodes
-- Nodes of the tree; what stands, stands.
INSERT INTO log_nodes (tenant, height, number, hash)
SELECT $1, height, number, hash FROM unnest($2::smallint[], $3::bigint[], $4::bytea[]) AS made (height, number, hash)
ON CONFLICT DO NOTHING;

-- name: hashes_between
-- The stored hashes of each stretch (height, first number, number behind its last), in order.
SELECT wanted.n, log_nodes.number, log_nodes.hash
FROM unnest($2::integer[], $3::smallint[], $4::bigint[], $5::bigint[]) AS wanted (n, height, first, behind)
JOIN log_nodes ON log_nodes.tenant = $1 AND log_nodes.height = wanted.height AND log_nodes.number >= first AND log_nodes.number < behind
UNION ALL
SELECT wanted.n, records.position, records.leaf
FROM unnest($2::integer[], $3::smallint[], $4::bigint[], $5::bigint[]) AS wanted (n, height, first, behind)
JOIN records ON records.tenant = $1 AND records.position >= first AND records.position < behind
WHERE wanted.height = 0
ORDER BY 1, 2;

-- name: get_place
-- A record's position and exact bytes.
SELECT position, body FROM records WHERE tenant = $1 AND decision_id = $2;

-- name: audit_records
-- All stored records of a tenant in order, for the verifier.
SELECT position, body, leaf, decision_id::text, kind, at, about::text, agent, subject, run_id, workflow, tool, effect, reason_code, status
FROM records WHERE tenant = $1 ORDER BY position;

-- name: pin_master_key
-- Say once which master key wraps the data keys; the one that stands comes back.
UPDATE installation SET master_id = coalesce(master_id, $1) RETURNING master_id;

-- name: insert_subject_key
-- A new data key of a subject; the one that stands, stands.
INSERT INTO subject_keys (tenant, key_id, subject, wrapped) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: standing_subject_key
-- The wrapped data key that seals for a subject now.
SELECT wrapped FROM subject_keys WHERE tenant = $1 AND subject = $2 AND wrapped IS NOT NULL;

-- name: get_subject_key
-- A data key by its id; wrapped is null where it was destroyed.
SELECT subject, wrapped FROM subject_keys WHERE tenant = $1 AND key_id = $2;

-- name: destroy_subject_keys
-- Destroy the data keys of a subject.
UPDATE subject_keys SET wrapped = NULL, destroyed_at = clock_timestamp()
WHERE tenant = $1 AND subject = $2 AND wrapped IS NOT NULL RETURNING key_id;

-- name: audit_payloads
-- Stored payloads of records, for the verifier.
SELECT payloads.decision_id::text, payloads.kind, payloads.body, payloads.key_id FROM payloads WHERE tenant = $1 AND decision_id = ANY ($2::uuid[]);

-- name: audit_keys
-- The key table, for the verifier.
SELECT key_id, wrapped FROM subject_keys WHERE tenant = $1;

-- name: audit_redactions
-- The records that say what was erased.
SELECT position, body FROM records WHERE tenant = $1 AND kind = 'redaction' ORDER BY position;
