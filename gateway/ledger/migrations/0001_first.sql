-- What a governed call needs: the revision in force, claims, calls, runs, budgets, approvals, records, payloads.
-- Every key leads with tenant, the condition for distributing the schema by tenant later.

CREATE TABLE installation (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    is_dev boolean NOT NULL
);

-- The revision in force and the epoch that any change of control bumps; read FOR SHARE by every admission.
CREATE TABLE controls (
    tenant text PRIMARY KEY,
    revision text NOT NULL,
    epoch bigint NOT NULL,
    digest_key bytea NOT NULL CHECK (octet_length(digest_key) = 32)
);

-- Two identities of a call, in one table so that one lock order covers both:
-- transport (scope: agent) and business (scope: tool).
CREATE TABLE claims (
    tenant text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('business', 'transport')),
    scope text NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    decision_id uuid NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (tenant, kind, scope, digest)
);
COMMENT ON COLUMN claims.expires_at IS 'transport: never executes after it; business: a new execution is intended after it, null while the call is live';

-- Admitted calls. A refused call is a record only.
CREATE TABLE calls (
    tenant text NOT NULL,
    decision_id uuid NOT NULL,
    agent text NOT NULL,
    subject text NOT NULL,
    run_id text NOT NULL,
    workflow text NOT NULL,
    tool text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    state text NOT NULL CHECK (state IN ('open', 'running', 'pending_client', 'in_doubt', 'succeeded', 'failed')),
    status text,
    reason_code text,
    admitted_at timestamptz NOT NULL,
    finished_at timestamptz,
    answer bytea,
    PRIMARY KEY (tenant, decision_id)
);
CREATE INDEX calls_of_run ON calls (tenant, agent, run_id, decision_id);
CREATE INDEX calls_recent ON calls (tenant, subject, tool, admitted_at);

CREATE TABLE runs (
    tenant text NOT NULL,
    agent text NOT NULL,
    run_id text NOT NULL,
    workflow text NOT NULL,
    subject text NOT NULL,
    calls integer NOT NULL,
    failures integer NOT NULL,
    PRIMARY KEY (tenant, agent, run_id)
);

-- Amounts in millionths of the budget's unit. Limits live in the bundle, not here.
CREATE TABLE budgets (
    tenant text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    period text NOT NULL,
    reserved bigint NOT NULL CHECK (reserved >= 0),
    spent bigint NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (tenant, name, scope, period)
);
CREATE TABLE reservations (
    tenant text NOT NULL,
    decision_id uuid NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    period text NOT NULL,
    unit text NOT NULL,
    amount bigint NOT NULL CHECK (amount >= 0),
    state text NOT NULL CHECK (state IN ('held', 'settled', 'released')),
    settled bigint CHECK (settled >= 0),
    PRIMARY KEY (tenant, decision_id, name),
    FOREIGN KEY (tenant, name, scope, period) REFERENCES budgets (tenant, name, scope, period),
    FOREIGN KEY (tenant, decision_id) REFERENCES calls (tenant, decision_id)
);

CREATE TABLE approvals (
    tenant text NOT NULL,
    approval_id uuid NOT NULL,
    effect_hash bytea NOT NULL CHECK (octet_length(effect_hash) = 32),
    state text NOT NULL CHECK (state IN ('pending', 'expired')),
    decision_id uuid NOT NULL,
    agent text NOT NULL,
    subject text NOT NULL,
    run_id text NOT NULL,
    workflow text NOT NULL,
    tool text NOT NULL,
    tool_digest text NOT NULL,
    rule text NOT NULL,
    permission text NOT NULL,
    summary text NOT NULL,
    arguments bytea NOT NULL,
    requested_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, approval_id)
);
CREATE UNIQUE INDEX approvals_pending ON approvals (tenant, effect_hash) WHERE state = 'pending';

-- The decision log. `body` holds the exact bytes that `leaf` is the hash of; the columns beside it are for search.
CREATE TABLE log_heads (
    tenant text PRIMARY KEY,
    size bigint NOT NULL CHECK (size >= 0)
);
CREATE TABLE records (
    tenant text NOT NULL,
    decision_id uuid NOT NULL,
    position bigint NOT NULL CHECK (position >= 0),
    kind text NOT NULL,
    at timestamptz NOT NULL,
    about uuid,
    agent text,
    subject text,
    run_id text,
    workflow text,
    tool text,
    effect text,
    reason_code text,
    status text,
    body bytea NOT NULL,
    leaf bytea NOT NULL CHECK (octet_length(leaf) = 32),
    PRIMARY KEY (tenant, decision_id),
    UNIQUE (tenant, position)
);
CREATE INDEX records_about ON records (tenant, about) WHERE about IS NOT NULL;
COMMENT ON COLUMN records.about IS 'the decision that an outcome or replay record belongs to';

CREATE TABLE payloads (
    tenant text NOT NULL,
    decision_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('arguments', 'result')),
    body bytea NOT NULL,
    PRIMARY KEY (tenant, decision_id, kind)
);

GRANT SELECT, INSERT, UPDATE ON controls, claims, calls, runs, budgets, reservations, approvals, log_heads TO gateway_app;
GRANT SELECT, INSERT ON records, payloads, installation TO gateway_app;
GRANT SELECT ON schema_migrations TO gateway_app;
