-- The payment guard: for each payment, the one place where it may land.
CREATE TABLE payments (
    payment       text        PRIMARY KEY,
    job_id        uuid        NOT NULL,
    chain         text        NOT NULL,
    wallet        text        NOT NULL,
    -- What is paid; null while only a cancellation was signed.
    asset         text,
    destination   text,
    amount        numeric(78, 0),
    call_hash     bytea,
    may_shrink    boolean     NOT NULL,
    -- The current slot.
    generation    integer     NOT NULL,
    nonce         bigint,
    tron_id       bytea,
    expires_ms    bigint,
    ceiling       numeric(39, 0) NOT NULL,
    tip           numeric(39, 0) NOT NULL,
    gas_limit     bigint      NOT NULL,
    state         text        NOT NULL,
    live          boolean     NOT NULL,
    bumps         integer     NOT NULL,
    -- When the payment was first signed for: approvals are judged by this instant ever after.
    first_paid_at timestamptz,
    updated_at    timestamptz NOT NULL,
    CONSTRAINT payments_state_known CHECK (state IN ('paying', 'closing')),
    -- A paying slot can land by definition.
    CONSTRAINT payments_paying_is_live CHECK (state <> 'paying' OR live),
    CONSTRAINT payments_one_slot CHECK ((nonce IS NULL) = (tron_id IS NOT NULL)
                                        AND (tron_id IS NULL) = (expires_ms IS NULL)),
    CONSTRAINT payments_live_has_terms CHECK (NOT live OR (destination IS NOT NULL AND amount IS NOT NULL
                                                           AND first_paid_at IS NOT NULL)),
    CONSTRAINT payments_amount_range CHECK (amount >= 0),
    CONSTRAINT payments_nonce_range CHECK (nonce >= 0),
    CONSTRAINT payments_tron_id_length CHECK (octet_length(tron_id) = 32),
    CONSTRAINT payments_counts_range CHECK (generation >= 0 AND bumps >= 0 AND gas_limit >= 0)
);

-- A payment never changes its chain, wallet or job, whatever is proven void.
CREATE FUNCTION payments_bound() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'payment % is bound to its chain, wallet and job', OLD.payment
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'payments_bound';
END
$$;

CREATE TRIGGER payments_bound BEFORE UPDATE ON payments FOR EACH ROW
    WHEN (OLD.chain <> NEW.chain OR OLD.wallet <> NEW.wallet OR OLD.job_id <> NEW.job_id
          OR OLD.generation > NEW.generation)
    EXECUTE FUNCTION payments_bound();
