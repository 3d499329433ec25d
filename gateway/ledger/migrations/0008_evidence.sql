-- The log as evidence: append-only by trigger, records in partitions by the time in their ids, the tree and its checkpoints.

-- What this installation is called in its logs, and by which keys it is held; each is set once.
ALTER TABLE installation
    ADD COLUMN log_id uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN signing_key bytea CHECK (octet_length(signing_key) = 32);
COMMENT ON COLUMN installation.signing_key IS 'public key that checkpoints are signed with';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% only grows', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION refuse_second_value() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.log_id <> NEW.log_id OR OLD.is_dev <> NEW.is_dev OR (OLD.signing_key IS NOT NULL AND OLD.signing_key IS DISTINCT FROM NEW.signing_key) THEN
        RAISE EXCEPTION 'an installation keeps its names and keys' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER installation_keeps_its_values BEFORE UPDATE ON installation FOR EACH ROW EXECUTE FUNCTION refuse_second_value();
GRANT UPDATE (signing_key) ON installation TO gateway_app;

-- The smallest UUIDv7 of a moment.
CREATE FUNCTION first_uuid_of(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Records of up to the end of this month stay where they are, as the first partition.
ALTER TABLE records RENAME TO records_first;
ALTER TABLE records_first RENAME CONSTRAINT records_pkey TO records_first_pkey;
ALTER TABLE records_first RENAME CONSTRAINT records_tenant_position_key TO records_first_tenant_position_key;
CREATE TABLE records (LIKE records_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS, PRIMARY KEY (tenant, decision_id))
    PARTITION BY RANGE (decision_id);
DO $$
DECLARE
    standing record;
BEGIN
    -- Every partition gets the indexes that there are; those of the first one are taken as they are.
    FOR standing IN SELECT indexrelid::regclass AS name, pg_get_indexdef(indexrelid) AS definition
                    FROM pg_index WHERE indrelid = 'records_first'::regclass AND NOT indisunique LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', standing.name, replace(standing.name::text, 'records_', 'records_first_'));
        EXECUTE replace(standing.definition, ' ON public.records_first ', ' ON records ');
    END LOOP;
END $$;
CREATE TRIGGER records_only_grow BEFORE UPDATE OR DELETE ON records FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER records_are_not_emptied BEFORE TRUNCATE ON records FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER records_are_not_emptied BEFORE TRUNCATE ON records_first FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
DO $$ BEGIN
    EXECUTE format('ALTER TABLE records ATTACH PARTITION records_first FOR VALUES FROM (MINVALUE) TO (%L)',
                   first_uuid_of(date_trunc('month', now(), 'UTC') + interval '1 month'));
END $$;
COMMENT ON TABLE records IS 'positions are unique within each partition by an index, across partitions by the lock on log_heads';

-- The moment in a UUIDv7 that bounds a partition; null for one without a bound.
CREATE FUNCTION made_at(bound text) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN bound <> 'MINVALUE' THEN to_timestamp(('x' || lpad(left(replace(bound, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0) END
$$;

-- When the partitions' records were made; null where a partition has no lower bound.
CREATE VIEW record_partitions AS
SELECT name, made_at(bounds[1]) AS since, made_at(bounds[2]) AS until
FROM (SELECT inhrelid::regclass::text AS name,
             regexp_match(pg_get_expr(relpartbound, inhrelid), 'FROM \(''?([-0-9a-fA-Z]+)''?\) TO \(''?([-0-9a-fA-Z]+)''?\)') AS bounds
      FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'records'::regclass) AS partitions;

-- Partitions for this and the coming months, where they are missing; writers go on meanwhile.
-- A partition is made apart and attached: that takes no lock that an insert would wait for.
CREATE FUNCTION add_record_partitions(months integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    added integer := 0;
    month timestamptz;
    child text;
BEGIN
    PERFORM pg_advisory_xact_lock(7023144907);
    FOR month IN SELECT date_trunc('month', now(), 'UTC') + n * interval '1 month' FROM generate_series(0, least(months, 120)) AS n LOOP
        child := 'records_' || to_char(month AT TIME ZONE 'UTC', 'YYYYMM');
        CONTINUE WHEN to_regclass(child) IS NOT NULL OR month < (SELECT min(until) FROM record_partitions WHERE since IS NULL);
        EXECUTE format('CREATE TABLE %I (LIKE records INCLUDING ALL, UNIQUE (tenant, position))', child);
        EXECUTE format('CREATE TRIGGER records_are_not_emptied BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', child);
        EXECUTE format('ALTER TABLE records ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                       child, first_uuid_of(month), first_uuid_of(month + interval '1 month'));
        added := added + 1;
    END LOOP;
    RETURN added;
END $$;

-- The tree over the log, as far as it was signed: roots of 2^height records. Height 0 only where the records are gone.
CREATE TABLE log_nodes (
    tenant text NOT NULL,
    height smallint NOT NULL,
    number bigint NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    PRIMARY KEY (tenant, height, number)
);
CREATE TRIGGER log_nodes_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON log_nodes FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The last checkpoint of each log. What counts is published outside of this database.
CREATE TABLE log_checkpoints (
    tenant text PRIMARY KEY,
    size bigint NOT NULL,
    peaks bytea NOT NULL,
    note text NOT NULL,
    published_at timestamptz NOT NULL,
    alarm text
);
COMMENT ON COLUMN log_checkpoints.alarm IS 'why nothing is signed at the moment';

GRANT SELECT, INSERT ON records, log_nodes TO gateway_app;
GRANT SELECT ON record_partitions TO gateway_app;
GRANT SELECT, INSERT, UPDATE ON log_checkpoints TO gateway_app;
REVOKE EXECUTE ON FUNCTION add_record_partitions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION add_record_partitions TO gateway_app;
SELECT add_record_partitions(3);
