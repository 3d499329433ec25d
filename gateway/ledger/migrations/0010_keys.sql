-- Keys that the gateway made: only their digests. Rotated keys share a family.

CREATE TABLE keys (
    tenant text NOT NULL,
    key_id uuid NOT NULL,
    family uuid NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    hint text NOT NULL,
    roles text[] NOT NULL,
    agent text,
    person text,
    label text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_by text,
    revoked_at timestamptz,
    PRIMARY KEY (tenant, key_id)
);
-- Not unique: a unique key would have to lead with the tenant, which nobody knows before the key was found.
CREATE INDEX keys_by_digest ON keys (digest);
CREATE INDEX keys_of_family ON keys (tenant, family);

GRANT SELECT, INSERT ON keys TO gateway_app;
GRANT UPDATE (expires_at, revoked_by, revoked_at) ON keys TO gateway_app;
