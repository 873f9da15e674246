-- Jobs whose transactions are watched, every transaction signed for them, and what was seen of each.

CREATE TABLE watches (
    job_id           uuid           NOT NULL,
    withdrawal_id    uuid,
    chain            text           NOT NULL,
    from_address     text           NOT NULL,
    to_address       text           NOT NULL,
    amount_raw       numeric(78, 0) NOT NULL,
    -- Null for the native asset.
    contract_address text,
    -- A job gets a new binding (nonce, window) only after the verdict on the one before: that begins a new round.
    round            integer        NOT NULL DEFAULT 1,
    -- The nonce of this round, where it is known and the chain has them.
    nonce            bigint,
    -- A final block at the time this round began; the search for a foreign transaction starts here.
    since_block      bigint         NOT NULL,
    status           text           NOT NULL,
    -- The transaction of ours that is included or final; for `void` the foreign one, if it is known.
    tx_hash          bytea,
    -- Its block; for `void` the block that proves it.
    block_number     bigint,
    block_hash       bytea,
    -- Only for `reverted`: something moved, or may have.
    value_moved      boolean,
    -- Since when the newest transaction of the round has been neither seen nor superseded.
    waiting_since    timestamptz    NOT NULL,
    -- When a waiting watch is next looked up by itself; set anew by each look.
    check_due_at     timestamptz    NOT NULL,
    delayed_reason   text           NOT NULL DEFAULT '',
    -- What was final is not; a person must look.
    contradicted_at  timestamptz,
    -- The trace context of the request that began the watch; verdicts continue that trace.
    trace            jsonb          NOT NULL,
    -- Grows with each change: compare-and-set.
    version          bigint         NOT NULL DEFAULT 1,
    created_at       timestamptz    NOT NULL DEFAULT now(),
    finished_at      timestamptz,
    CONSTRAINT watches_pkey PRIMARY KEY (job_id),
    CONSTRAINT watches_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    CONSTRAINT watches_amount_not_negative CHECK (amount_raw >= 0),
    CONSTRAINT watches_round_positive CHECK (round >= 1),
    CONSTRAINT watches_hash_sizes CHECK (octet_length(tx_hash) = 32 AND octet_length(block_hash) = 32),
    CONSTRAINT watches_block_whole CHECK ((block_number IS NULL) = (block_hash IS NULL)),
    -- The state machine: what each status must and must not carry.
    CONSTRAINT watches_status_known
        CHECK (status IN ('waiting', 'included', 'settled', 'reverted', 'void', 'cancelled')),
    CONSTRAINT watches_waiting_has_no_block CHECK (status <> 'waiting' OR (tx_hash IS NULL AND block_number IS NULL)),
    CONSTRAINT watches_landed_has_its_block
        CHECK (status NOT IN ('included', 'settled', 'reverted', 'cancelled') OR (tx_hash IS NOT NULL AND block_number IS NOT NULL)),
    CONSTRAINT watches_void_has_evidence CHECK (status <> 'void' OR block_number IS NOT NULL),
    CONSTRAINT watches_ended_is_dated CHECK ((finished_at IS NOT NULL) = (status IN ('settled', 'reverted', 'void', 'cancelled'))),
    CONSTRAINT watches_value_moved_of_reverted CHECK ((value_moved IS NOT NULL) = (status = 'reverted'))
);

-- Waiting watches in the order in which they are looked up.
CREATE INDEX watches_due ON watches (chain, check_due_at) WHERE status = 'waiting';
-- The lowest open nonce of each sender, which decides for all above it.
CREATE INDEX watches_lanes ON watches (chain, from_address, nonce) WHERE status = 'waiting';
-- Open watches, for the gauges and for the day the ring of heads is lost.
CREATE INDEX watches_open ON watches (chain, status, created_at) WHERE status IN ('waiting', 'included');
-- What was called final in recent blocks, checked when a block that was final is undone.
CREATE INDEX watches_ended ON watches (chain, block_number) WHERE status IN ('settled', 'reverted', 'void', 'cancelled');
-- Lists, newest first, with and without a chain.
CREATE INDEX watches_newest ON watches (created_at DESC, job_id DESC);
CREATE INDEX watches_newest_of_chain ON watches (chain, created_at DESC, job_id DESC);

CREATE TABLE watched_transactions (
    chain           text        NOT NULL,
    hash            bytea       NOT NULL,
    job_id          uuid        NOT NULL,
    round           integer     NOT NULL,
    -- The order in which they were signed.
    position        integer     NOT NULL,
    is_cancellation boolean     NOT NULL,
    nonce           bigint,
    expires_at      timestamptz,
    reference_block bigint      NOT NULL,
    added_at        timestamptz NOT NULL DEFAULT now(),
    -- The canonical block it was last seen in; cleared when that block is undone.
    block_number    bigint,
    block_hash      bytea,
    -- When its standing in that block was agreed to be final.
    final_at        timestamptz,
    -- A transaction belongs to one job; also how the hashes of a new block are recognised.
    CONSTRAINT watched_transactions_pkey PRIMARY KEY (chain, hash),
    CONSTRAINT watched_transactions_job_fkey FOREIGN KEY (job_id) REFERENCES watches (job_id),
    CONSTRAINT watched_transactions_position_key UNIQUE (job_id, position),
    CONSTRAINT watched_transactions_hash_sizes CHECK (octet_length(hash) = 32 AND octet_length(block_hash) = 32),
    CONSTRAINT watched_transactions_block_whole CHECK ((block_number IS NULL) = (block_hash IS NULL)),
    CONSTRAINT watched_transactions_final_has_block CHECK (final_at IS NULL OR block_number IS NOT NULL)
);

-- Seen and not final yet: what a new final block may decide.
CREATE INDEX watched_transactions_undecided ON watched_transactions (chain, block_number, hash)
    WHERE block_number IS NOT NULL AND final_at IS NULL;

-- What was seen, in order; never changed. For people who must understand a verdict.
CREATE TABLE observations (
    id           bigint      GENERATED ALWAYS AS IDENTITY,
    job_id       uuid        NOT NULL,
    kind         text        NOT NULL,
    tx_hash      bytea,
    block_number bigint,
    block_hash   bytea,
    detail       text        NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT observations_pkey PRIMARY KEY (id),
    CONSTRAINT observations_job_fkey FOREIGN KEY (job_id) REFERENCES watches (job_id),
    CONSTRAINT observations_kind_known
        CHECK (kind IN ('seen', 'undone', 'final', 'closed', 'overdue', 'delayed', 'contradicted', 'round'))
);

-- The observations of one job, in order.
CREATE INDEX observations_job ON observations (job_id, id);
