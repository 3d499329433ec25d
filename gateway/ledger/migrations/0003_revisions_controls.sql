-- Who pushed a revision and what was in force when; what operators took out of service.

ALTER TABLE revisions
    ADD COLUMN name text NOT NULL DEFAULT '',
    ADD COLUMN note text NOT NULL DEFAULT '',
    ADD COLUMN pushed_by text NOT NULL DEFAULT '',
    ADD COLUMN pushed_at timestamptz NOT NULL DEFAULT clock_timestamp();

CREATE TABLE activations (
    tenant text NOT NULL,
    epoch bigint NOT NULL,
    revision text NOT NULL,
    activated_by text NOT NULL,
    activated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, epoch),
    FOREIGN KEY (tenant, revision) REFERENCES revisions (tenant, revision)
);
CREATE INDEX activations_of_revision ON activations (tenant, revision, epoch);
COMMENT ON COLUMN activations.epoch IS 'the epoch of the control row that the activation began';

-- What stands here is out of service: an agent (suspended), a tool (disabled), or the whole tenant (frozen; its name is '').
CREATE TABLE restrictions (
    tenant text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'tool', 'tenant')),
    name text NOT NULL,
    reason text NOT NULL,
    restricted_by text NOT NULL,
    restricted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, kind, name)
);

GRANT SELECT, INSERT ON activations TO gateway_app;
GRANT SELECT, INSERT, DELETE ON restrictions TO gateway_app;
