-- People's answers on approvals, grants and what used them; calls that the agent's client performs.

-- Nobody could answer what was asked so far.
DELETE FROM approvals;
ALTER TABLE approvals DROP CONSTRAINT approvals_state_check;
ALTER TABLE approvals
    ADD CONSTRAINT approvals_state_check CHECK (state IN ('pending', 'granted', 'consumed', 'denied', 'expired')),
    ADD COLUMN valid_for_s double precision NOT NULL,
    ADD COLUMN revision text NOT NULL,
    ADD COLUMN suggested_args bytea,
    ADD COLUMN consumed_by uuid;
ALTER TABLE approvals RENAME COLUMN arguments TO request;
COMMENT ON COLUMN approvals.request IS 'what the approver is shown, as JSON, with redacted values as digests';
COMMENT ON COLUMN approvals.expires_at IS 'pending: when silence becomes a no; granted: when the yes is over; denied: until when the no holds in its run';
COMMENT ON COLUMN approvals.consumed_by IS 'the call that uses the grant; null again once it is proven to have had no effect';

CREATE INDEX approvals_of_effect ON approvals (tenant, effect_hash);
CREATE INDEX approvals_by_state ON approvals (tenant, state, approval_id);
CREATE INDEX approvals_ending ON approvals (tenant, expires_at) WHERE state IN ('pending', 'granted');
CREATE INDEX approvals_consumed ON approvals (tenant, consumed_by) WHERE consumed_by IS NOT NULL;

-- One answer a person.
CREATE TABLE approval_answers (
    tenant text NOT NULL,
    approval_id uuid NOT NULL,
    person text NOT NULL,
    answer text NOT NULL CHECK (answer IN ('approve', 'deny')),
    comment text,
    at timestamptz NOT NULL,
    PRIMARY KEY (tenant, approval_id, person),
    FOREIGN KEY (tenant, approval_id) REFERENCES approvals (tenant, approval_id)
);
GRANT SELECT, INSERT ON approval_answers TO gateway_app;

CREATE INDEX calls_pending_client ON calls (tenant, lease_until) WHERE state = 'pending_client';
COMMENT ON COLUMN calls.invocation IS 'what a resolver needs to repeat or probe, or the client to perform; removed when the call has ended';
