-- Runs whose model loop the gateway owns: leases and fences, the turns of the model, the events of each run.
-- What people and models wrote in a conversation stands in these tables only, never in records.

ALTER TABLE runs ADD COLUMN cancelled_at timestamptz;
COMMENT ON COLUMN runs.cancelled_at IS 'from then on no call of the run is admitted';

CREATE TABLE model_runs (
    tenant text NOT NULL,
    agent text NOT NULL,
    run_id text NOT NULL,
    workflow text NOT NULL,
    subject text NOT NULL,
    model text NOT NULL,
    prompt text NOT NULL CHECK (length(prompt) <= 32768),
    context bytea NOT NULL CHECK (octet_length(context) <= 262144),
    bounds bytea NOT NULL,
    start_key bytea CHECK (octet_length(start_key) = 32),
    request_digest bytea NOT NULL CHECK (octet_length(request_digest) = 32),
    state text NOT NULL CHECK (state IN ('running', 'answered', 'failed', 'cancelled')),
    reason_code text,
    is_resumable boolean NOT NULL DEFAULT false,
    answer text CHECK (length(answer) <= 131072),
    started_at timestamptz NOT NULL,
    ends_by timestamptz NOT NULL,
    finished_at timestamptz,
    lease_until timestamptz NOT NULL,
    fence bigint NOT NULL,
    turns integer NOT NULL DEFAULT 0,
    model_calls integer NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, agent, run_id)
);
CREATE UNIQUE INDEX model_runs_started ON model_runs (tenant, agent, start_key) WHERE start_key IS NOT NULL;
CREATE INDEX model_runs_due ON model_runs (tenant, lease_until) WHERE state = 'running';
CREATE INDEX model_runs_newest ON model_runs (tenant, agent, started_at, run_id);
COMMENT ON COLUMN model_runs.lease_until IS 'database time until which only the holder of the fence may go on';
COMMENT ON COLUMN model_runs.events IS 'the id of the last event';

-- Each turn whole, as it came over the wire; stored before the first of its calls is governed, and never asked for again.
CREATE TABLE model_turns (
    tenant text NOT NULL,
    agent text NOT NULL,
    run_id text NOT NULL,
    turn integer NOT NULL CHECK (turn >= 0),
    response bytea NOT NULL CHECK (octet_length(response) <= 1048576),
    reply bytea,
    first_event bigint NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, agent, run_id, turn),
    FOREIGN KEY (tenant, agent, run_id) REFERENCES model_runs (tenant, agent, run_id)
);
COMMENT ON COLUMN model_turns.first_event IS 'the event that told of the turn; later ones are of its round';

CREATE TABLE run_events (
    tenant text NOT NULL,
    agent text NOT NULL,
    run_id text NOT NULL,
    event_id bigint NOT NULL CHECK (event_id > 0),
    type text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL,
    PRIMARY KEY (tenant, agent, run_id, event_id),
    FOREIGN KEY (tenant, agent, run_id) REFERENCES model_runs (tenant, agent, run_id)
);

GRANT SELECT, INSERT, UPDATE ON model_runs, model_turns TO gateway_app;
GRANT SELECT, INSERT ON run_events TO gateway_app;
