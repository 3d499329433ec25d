-- Payloads are sealed with a key of their subject; keys are wrapped by the master key, and destroyed for erasure.

CREATE TABLE subject_keys (
    tenant text NOT NULL,
    key_id bytea NOT NULL CHECK (octet_length(key_id) = 32),
    subject text NOT NULL,
    wrapped bytea,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    destroyed_at timestamptz,
    PRIMARY KEY (tenant, key_id),
    CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL))
);
CREATE UNIQUE INDEX subject_keys_standing ON subject_keys (tenant, subject) WHERE wrapped IS NOT NULL;
COMMENT ON COLUMN subject_keys.key_id IS 'SHA-256 of the wrapped key; records name it beside what it sealed';

CREATE FUNCTION only_destroy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.wrapped IS NOT NULL OR OLD.wrapped IS NULL OR (NEW.tenant, NEW.key_id, NEW.subject, NEW.made_at) IS DISTINCT FROM
       (OLD.tenant, OLD.key_id, OLD.subject, OLD.made_at) THEN
        RAISE EXCEPTION 'a data key is kept or destroyed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER subject_keys_are_only_destroyed BEFORE UPDATE ON subject_keys FOR EACH ROW EXECUTE FUNCTION only_destroy();
CREATE TRIGGER subject_keys_stay BEFORE DELETE OR TRUNCATE ON subject_keys FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What was stored in the clear before there was a release is not kept.
DELETE FROM payloads;
ALTER TABLE payloads ADD COLUMN key_id bytea NOT NULL;
CREATE TRIGGER payloads_do_not_change BEFORE UPDATE OR TRUNCATE ON payloads FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
UPDATE calls SET result = convert_to((convert_from(result, 'UTF8')::jsonb || '{"data": null, "data_omitted": "expired"}')::text, 'UTF8')
WHERE convert_from(result, 'UTF8')::jsonb ? 'data';
UPDATE calls SET invocation = NULL, due_at = NULL WHERE invocation IS NOT NULL;

ALTER TABLE installation ADD COLUMN master_id bytea CHECK (octet_length(master_id) = 32);
COMMENT ON COLUMN installation.master_id IS 'digest of the master key that wraps the data keys; set once';
CREATE FUNCTION refuse_second_master() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.master_id IS NOT NULL AND OLD.master_id IS DISTINCT FROM NEW.master_id THEN
        RAISE EXCEPTION 'an installation keeps its master key' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER installation_keeps_its_master BEFORE UPDATE ON installation FOR EACH ROW EXECUTE FUNCTION refuse_second_master();

GRANT SELECT, INSERT ON subject_keys TO gateway_app;
GRANT UPDATE (wrapped, destroyed_at) ON subject_keys TO gateway_app;
GRANT UPDATE (master_id) ON installation TO gateway_app;
