-- Payments to be made once, and every transaction signed for them.

CREATE TABLE jobs (
    id               uuid          NOT NULL,
    queue            text          NOT NULL,
    withdrawal_id    uuid,
    chain            text          NOT NULL,
    asset_id         uuid          NOT NULL,
    wallet_id        uuid,
    to_address       text          NOT NULL,
    amount_raw       numeric(78,0) NOT NULL,
    rank             smallint      NOT NULL,
    status           text          NOT NULL,
    -- Tries that count, and pauses in a row that do not (a node or the signer was away, no liquidity).
    tries            integer       NOT NULL DEFAULT 0,
    max_tries        integer       NOT NULL,
    waits            integer       NOT NULL DEFAULT 0,
    error            text,
    blocked_reason   text,
    -- What the worker shall do with a job that has a nonce open: raise the fee, or close the nonce without paying.
    wanted           text,
    cancel_reason    text,
    tx_hash          bytea,
    requested_by     text          NOT NULL,
    approvals        jsonb         NOT NULL,
    -- Confirmation's signed word that what was signed before can never pay; goes with the next signature.
    void_proof       jsonb,
    -- Whether the amount is counted in wallet_holdings.reserved_raw: released exactly once.
    reserved         boolean       NOT NULL DEFAULT false,
    fee_paid_raw     numeric(78,0) NOT NULL DEFAULT 0,
    imported         boolean       NOT NULL DEFAULT false,
    -- Pays nobody: closes a nonce that nobody holds and that jams the ones above it.
    filler           boolean       NOT NULL DEFAULT false,
    trace            jsonb         NOT NULL DEFAULT '{}',
    created_at       timestamptz   NOT NULL DEFAULT now(),
    updated_at       timestamptz   NOT NULL DEFAULT now(),
    processing_since timestamptz,
    broadcast_at     timestamptz,
    finished_at      timestamptz,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    -- For ever, whatever the status: the same withdrawal never gets a second job.
    CONSTRAINT jobs_withdrawal_key UNIQUE (withdrawal_id),
    CONSTRAINT jobs_asset_fkey FOREIGN KEY (asset_id) REFERENCES assets (id),
    CONSTRAINT jobs_wallet_fkey FOREIGN KEY (wallet_id) REFERENCES operation_wallets (id),
    CONSTRAINT jobs_queue_known CHECK (queue IN ('withdrawal', 'consolidation', 'gas')),
    CONSTRAINT jobs_withdrawal_named CHECK ((queue = 'withdrawal') = (withdrawal_id IS NOT NULL)),
    CONSTRAINT jobs_status_known CHECK (
        status IN ('pending', 'processing', 'confirming', 'confirmed', 'failed', 'parked')
    ),
    CONSTRAINT jobs_rank_known CHECK (rank BETWEEN 0 AND 3),
    CONSTRAINT jobs_amount_positive CHECK (amount_raw > 0),
    CONSTRAINT jobs_tries_positive CHECK (tries >= 0 AND max_tries > 0 AND waits >= 0),
    CONSTRAINT jobs_wanted_known CHECK (wanted IN ('bump', 'cancel')),
    CONSTRAINT jobs_cancel_says_why CHECK (wanted IS DISTINCT FROM 'cancel' OR cancel_reason IS NOT NULL),
    -- Work needs a payer; only waiting or ending does not.
    CONSTRAINT jobs_work_has_wallet CHECK (
        wallet_id IS NOT NULL OR status IN ('pending', 'processing', 'failed')
    ),
    CONSTRAINT jobs_without_wallet_says_why CHECK (
        wallet_id IS NOT NULL OR status <> 'pending' OR blocked_reason IS NOT NULL
    ),
    CONSTRAINT jobs_confirmed_has_hash CHECK (status <> 'confirmed' OR tx_hash IS NOT NULL),
    CONSTRAINT jobs_finished_when CHECK ((status IN ('confirmed', 'failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_end_says_why CHECK (status NOT IN ('failed', 'parked') OR error IS NOT NULL),
    CONSTRAINT jobs_reserved_has_wallet CHECK (NOT reserved OR wallet_id IS NOT NULL),
    CONSTRAINT jobs_finished_reserves_nothing CHECK (NOT reserved OR finished_at IS NULL)
) WITH (fillfactor = 70);

-- What is not finished, by chain and status: lists, gauges, jobs waiting for liquidity. Stays small however long the
-- history grows.
CREATE INDEX jobs_unfinished ON jobs (chain, status, id) WHERE finished_at IS NULL;
-- Statistics over a window.
CREATE INDEX jobs_created ON jobs (created_at);

CREATE TABLE attempts (
    id                       uuid          NOT NULL,
    job_id                   uuid          NOT NULL,
    number                   integer       NOT NULL,
    kind                     text          NOT NULL,
    status                   text          NOT NULL,
    chain                    text          NOT NULL,
    address                  text          NOT NULL,
    -- Absent for a transaction of another system, of which only the hash is known.
    nonce                    bigint,
    -- A block at which the nonce was certainly unused: where a search for its fate begins.
    reference_block          bigint        NOT NULL DEFAULT 0,
    gas_limit                bigint,
    -- The most per unit of gas; without a tip it is a legacy price.
    max_fee_per_gas          numeric(39,0),
    max_priority_fee_per_gas numeric(39,0),
    -- As it was when the attempt was reserved: asking the signer again must be the same request.
    void_proof               jsonb,
    raw_transaction          bytea,
    tx_hash                  bytea,
    last_error               text,
    sends                    integer       NOT NULL DEFAULT 0,
    created_at               timestamptz   NOT NULL DEFAULT now(),
    signed_at                timestamptz,
    broadcast_at             timestamptz,
    last_sent_at             timestamptz,
    gas_used                 numeric(39,0),
    gas_price                numeric(39,0),
    block_number             bigint,
    CONSTRAINT attempts_pkey PRIMARY KEY (id),
    CONSTRAINT attempts_job_fkey FOREIGN KEY (job_id) REFERENCES jobs (id),
    -- `job/number` is the signer's idempotency key.
    CONSTRAINT attempts_number_key UNIQUE (job_id, number),
    -- Nobody else's transaction, and none of ours twice.
    CONSTRAINT attempts_hash_key UNIQUE (chain, tx_hash),
    CONSTRAINT attempts_kind_known CHECK (kind IN ('pay', 'cancel')),
    CONSTRAINT attempts_status_known CHECK (
        status IN ('reserved', 'signed', 'broadcast', 'settled', 'reverted', 'void')
    ),
    CONSTRAINT attempts_number_counts CHECK (number > 0),
    -- A hash without bytes is only possible for what another system sent.
    CONSTRAINT attempts_signed_has_hash CHECK (status IN ('reserved', 'void') OR tx_hash IS NOT NULL),
    CONSTRAINT attempts_bytes_have_hash CHECK (raw_transaction IS NULL OR tx_hash IS NOT NULL),
    CONSTRAINT attempts_ours_have_nonce CHECK (raw_transaction IS NULL OR nonce IS NOT NULL)
);

-- A further attempt is never begun while one may or may not have been signed.
CREATE UNIQUE INDEX attempts_one_unsigned ON attempts (job_id) WHERE status = 'reserved';

-- Verdicts taken in. The key makes delivery idempotent; the rest is history.
CREATE TABLE verdicts (
    id          uuid        NOT NULL,
    job_id      uuid        NOT NULL,
    finding     text        NOT NULL,
    detail      text        NOT NULL,
    at          timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT verdicts_pkey PRIMARY KEY (id),
    CONSTRAINT verdicts_job_fkey FOREIGN KEY (job_id) REFERENCES jobs (id)
);

CREATE INDEX verdicts_job ON verdicts (job_id);

-- The wallet of a job never changes: its nonce, its guard record at the signer and its reservation all hang on it.
CREATE FUNCTION jobs_keep_wallet() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the wallet of job % cannot change', OLD.id
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'jobs_wallet_for_ever';
END
$$;

CREATE TRIGGER jobs_wallet_for_ever
    BEFORE UPDATE OF wallet_id ON jobs
    FOR EACH ROW
    WHEN (OLD.wallet_id IS NOT NULL AND NEW.wallet_id IS DISTINCT FROM OLD.wallet_id)
    EXECUTE FUNCTION jobs_keep_wallet();
