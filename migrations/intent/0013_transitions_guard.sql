-- History is written once.
CREATE FUNCTION transitions_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'transitions are never changed or deleted'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'transitions_written_once';
END
$$;

CREATE TRIGGER transitions_guard BEFORE UPDATE OR DELETE ON transitions
    FOR EACH ROW EXECUTE FUNCTION transitions_guard();
