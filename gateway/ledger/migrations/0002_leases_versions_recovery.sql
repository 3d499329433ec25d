-- Leases, fences and what recovery needs; versions of facts; rates; the files of each revision.

ALTER TABLE calls
    ADD COLUMN told bytea,
    ADD COLUMN risk text NOT NULL DEFAULT 'irreversible' CHECK (risk IN ('read', 'write', 'irreversible')),
    ADD COLUMN replay text NOT NULL DEFAULT 'never' CHECK (replay IN ('safe', 'keyed', 'probe', 'never')),
    ADD COLUMN lease_s double precision NOT NULL DEFAULT 0,
    ADD COLUMN lease_until timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN fence integer NOT NULL DEFAULT 1,
    ADD COLUMN attempts integer NOT NULL DEFAULT 1,
    ADD COLUMN is_resolving boolean NOT NULL DEFAULT false,
    ADD COLUMN due_at timestamptz,
    ADD COLUMN invocation bytea,
    ADD COLUMN business_key bytea,
    ADD COLUMN window_s double precision;
ALTER TABLE calls RENAME COLUMN answer TO result;

COMMENT ON COLUMN calls.told IS 'call and decision of the answer, fixed at admission';
COMMENT ON COLUMN calls.result IS 'result of the answer, once there is one';
COMMENT ON COLUMN calls.lease_until IS 'database time until which only the sender may end the call';
COMMENT ON COLUMN calls.fence IS 'raised by every resolver that takes the call over; writes with another fence change nothing';
COMMENT ON COLUMN calls.is_resolving IS 'a resolver has begun: the late answer of the first sender no longer counts';
COMMENT ON COLUMN calls.due_at IS 'when the resolver looks at the doubt again; null where a person must';
COMMENT ON COLUMN calls.window_s IS 'seconds that the business key holds on after the call succeeded';
COMMENT ON COLUMN calls.invocation IS 'what a resolver needs to repeat or probe; removed when the call has ended';

CREATE INDEX calls_running ON calls (tenant, lease_until) WHERE state = 'running';
CREATE INDEX calls_in_doubt ON calls (tenant, due_at) WHERE state = 'in_doubt';
CREATE INDEX calls_of_input ON calls (tenant, agent, run_id, fingerprint);

-- The version of what policies see as input.recent: raised by every admission of the tool for the subject.
CREATE TABLE subject_tools (
    tenant text NOT NULL,
    subject text NOT NULL,
    tool text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, subject, tool)
);

-- GCRA: the theoretical arrival time in microseconds of database time.
CREATE TABLE rates (
    tenant text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    arrival_us bigint NOT NULL,
    PRIMARY KEY (tenant, name, scope)
);

-- The files of every revision that was in force: a call is resolved with its tool as it was.
CREATE TABLE revisions (
    tenant text NOT NULL,
    revision text NOT NULL,
    files bytea NOT NULL,
    PRIMARY KEY (tenant, revision)
);

GRANT SELECT, INSERT, UPDATE ON subject_tools, rates TO gateway_app;
GRANT SELECT, INSERT ON revisions TO gateway_app;
