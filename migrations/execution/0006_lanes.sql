-- The order in which one address numbers its transactions, and who holds which number.

CREATE TABLE lanes (
    chain         text        NOT NULL,
    address       text        NOT NULL,
    -- The next nonce nobody was ever given.
    next_nonce    bigint      NOT NULL,
    -- Why nothing new is numbered; a person lets it go on.
    halted_reason text,
    halted_at     timestamptz,
    -- Transactions of this address that are not ours, as far as noticed.
    foreign_seen  bigint      NOT NULL DEFAULT 0,
    -- The most transactions a node ever counted in a block: below it no nonce is free, whatever a lagging node says.
    mined_seen    bigint      NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lanes_pkey PRIMARY KEY (chain, address),
    CONSTRAINT lanes_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    CONSTRAINT lanes_nonce_positive CHECK (next_nonce >= 0),
    CONSTRAINT lanes_halted_when CHECK ((halted_reason IS NULL) = (halted_at IS NULL))
) WITH (fillfactor = 50);

CREATE TABLE lane_nonces (
    chain         text          NOT NULL,
    address       text          NOT NULL,
    nonce         bigint        NOT NULL,
    -- open: a job holds it. free: nothing was ever signed for it, it is handed out next. closed: something final is at it.
    state         text          NOT NULL,
    job_id        uuid,
    -- The most that the transaction at it can take from the wallet in the chain's own coin.
    committed_raw numeric(78,0) NOT NULL DEFAULT 0,
    closed_by     text,
    taken_at      timestamptz   NOT NULL DEFAULT now(),
    closed_at     timestamptz,
    -- One transaction of ours for each nonce of an address: what makes a second payment impossible on chain.
    CONSTRAINT lane_nonces_pkey PRIMARY KEY (chain, address, nonce),
    CONSTRAINT lane_nonces_lane_fkey FOREIGN KEY (chain, address) REFERENCES lanes (chain, address),
    CONSTRAINT lane_nonces_job_fkey FOREIGN KEY (job_id) REFERENCES jobs (id),
    CONSTRAINT lane_nonces_state_known CHECK (state IN ('open', 'free', 'closed')),
    CONSTRAINT lane_nonces_open_has_job CHECK (state <> 'open' OR job_id IS NOT NULL),
    CONSTRAINT lane_nonces_free_has_none CHECK (state <> 'free' OR job_id IS NULL),
    CONSTRAINT lane_nonces_closed_when CHECK ((state = 'closed') = (closed_at IS NOT NULL)),
    CONSTRAINT lane_nonces_closed_by_known CHECK (
        (state = 'closed') = (closed_by IS NOT NULL) AND closed_by IN ('payment', 'cancellation', 'foreign')
    ),
    CONSTRAINT lane_nonces_positive CHECK (nonce >= 0 AND committed_raw >= 0)
) WITH (fillfactor = 70);

-- One open nonce for each job: with two, both could pay.
CREATE UNIQUE INDEX lane_nonces_one_open_per_job ON lane_nonces (job_id) WHERE state = 'open';
-- What is under way or to be handed out again, without reading what is done.
CREATE INDEX lane_nonces_unclosed ON lane_nonces (chain, address, nonce) WHERE state <> 'closed';

-- "Failed" is a promise that nothing signed for the job can ever land. While it holds a nonce that promise cannot be given.
CREATE FUNCTION jobs_refuse_early_failure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM lane_nonces WHERE job_id = NEW.id AND state = 'open') THEN
        RAISE EXCEPTION 'job % holds an open nonce and cannot be called failed', NEW.id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'jobs_failed_holds_no_nonce';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER jobs_failed_holds_no_nonce
    BEFORE UPDATE OF status ON jobs
    FOR EACH ROW
    WHEN (NEW.status = 'failed' AND OLD.status <> 'failed')
    EXECUTE FUNCTION jobs_refuse_early_failure();
