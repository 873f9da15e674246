-- What a request says never changes, an ended request never moves again, and none is ever deleted: an idempotency key that
-- could be freed could be paid a second time.
CREATE FUNCTION withdrawal_requests_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'withdrawal requests are never deleted'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'withdrawal_requests_never_deleted';
    END IF;
    IF (NEW.id, NEW.origin, NEW.idempotency_key, NEW.payload_hash, NEW.user_id, NEW.chain, NEW.asset, NEW.amount_raw,
        NEW.decimals, NEW.destination, NEW.memo, NEW.priority_rank, NEW.labels, NEW.requested_by,
        NEW.required_approvals, NEW.created_at)
        IS DISTINCT FROM
       (OLD.id, OLD.origin, OLD.idempotency_key, OLD.payload_hash, OLD.user_id, OLD.chain, OLD.asset, OLD.amount_raw,
        OLD.decimals, OLD.destination, OLD.memo, OLD.priority_rank, OLD.labels, OLD.requested_by,
        OLD.required_approvals, OLD.created_at)
    THEN
        RAISE EXCEPTION 'the payload of a withdrawal request never changes'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'withdrawal_requests_payload_fixed';
    END IF;
    -- Approved may skip to an end: the word that it was queued can be the one that is late.
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('pending', 'approved'), ('pending', 'rejected'), ('pending', 'cancelled'),
        ('approved', 'queued'), ('approved', 'completed'), ('approved', 'failed'),
        ('queued', 'completed'), ('queued', 'failed'))
    THEN
        RAISE EXCEPTION 'a withdrawal request cannot go from % to %', OLD.status, NEW.status
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'withdrawal_requests_edge_known';
    END IF;
    IF OLD.finished_at IS NOT NULL THEN
        RAISE EXCEPTION 'a finished withdrawal request never changes'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'withdrawal_requests_finished_fixed';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER withdrawal_requests_guard BEFORE UPDATE OR DELETE ON withdrawal_requests
    FOR EACH ROW EXECUTE FUNCTION withdrawal_requests_guard();
