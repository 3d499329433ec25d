-- Searching the decision log. Each index leads to the newest (or oldest) records with a value of one field, in order of
-- position, so that a page costs the same wherever it begins. Values are compared as bytes, which serves prefixes too.

ALTER TABLE records
    ADD COLUMN stage text,
    ADD COLUMN risk text,
    ADD COLUMN words text;
COMMENT ON COLUMN records.words IS 'the safe words of the record for free text, parted by blanks; null where there are none';

UPDATE records SET stage = convert_from(body, 'UTF8')::json ->> 'stage', risk = convert_from(body, 'UTF8')::json ->> 'risk';

CREATE INDEX records_of_run ON records (tenant, (run_id COLLATE "C"), position);
CREATE INDEX records_of_subject ON records (tenant, (subject COLLATE "C"), position);
CREATE INDEX records_of_agent ON records (tenant, (agent COLLATE "C"), position);
CREATE INDEX records_of_tool ON records (tenant, (tool COLLATE "C"), position);
CREATE INDEX records_of_workflow ON records (tenant, (workflow COLLATE "C"), position);

-- One index for all fields that have few values: a search first asks which combinations there are (some dozens).
CREATE INDEX records_of_class ON records (
    tenant,
    ((kind || ' ' || coalesce(effect, '') || ' ' || coalesce(status, '') || ' ' || coalesce(reason_code, '') || ' '
      || coalesce(stage, '') || ' ' || coalesce(risk, '')) COLLATE "C"),
    position);

-- Where a window of times begins in the log.
CREATE INDEX records_at ON records (tenant, at);

-- Rare words. Common ones are found by looking at the newest records.
CREATE INDEX records_words ON records USING gin (array_to_tsvector(string_to_array(words, ' '))) WHERE words IS NOT NULL;
