-- What was written stays: a mistake or a stolen role cannot rewrite history by plain statements. Whoever can drop
-- triggers is found by the hashes.
CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER signing_records_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON signing_records
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER slots_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON slots
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
-- The guard's memory changes, but a payment is never forgotten.
CREATE TRIGGER payments_never_forgotten BEFORE DELETE OR TRUNCATE ON payments
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
