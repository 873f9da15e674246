-- Whom a request was made for never changes either.
CREATE FUNCTION withdrawal_requests_keep_principal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the payload of a withdrawal request never changes'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'withdrawal_requests_payload_fixed';
END
$$;

CREATE TRIGGER withdrawal_requests_keep_principal
    BEFORE UPDATE OF on_behalf_of ON withdrawal_requests
    FOR EACH ROW
    WHEN (NEW.on_behalf_of IS DISTINCT FROM OLD.on_behalf_of)
    EXECUTE FUNCTION withdrawal_requests_keep_principal();
