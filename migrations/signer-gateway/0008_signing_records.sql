-- Every signature ever given, with its bytes: asking again returns them.
CREATE TABLE signing_records (
    idempotency_key text        PRIMARY KEY,
    payment         text        NOT NULL,
    generation      integer     NOT NULL,
    -- Whether the transaction pays (rather than closing its nonce): such hashes must be proven void.
    pays            boolean     NOT NULL,
    -- Canonical JSON of what was asked; another request under the same key is told which field differs.
    request         text        NOT NULL,
    from_address    text        NOT NULL,
    raw_transaction bytea       NOT NULL,
    tx_hash         bytea       NOT NULL,
    -- Its log entry, written by the same statement. No foreign key: it would lock one log row per signature, and
    -- verification compares every record with its entry anyway.
    audit_sequence  bigint      NOT NULL,
    signed_at       timestamptz NOT NULL,
    CONSTRAINT signing_records_key_length CHECK (char_length(idempotency_key) BETWEEN 1 AND 200),
    CONSTRAINT signing_records_hash_length CHECK (octet_length(tx_hash) = 32),
    CONSTRAINT signing_records_generation_range CHECK (generation >= 0),
    CONSTRAINT signing_records_audited CHECK (audit_sequence >= 1)
);

-- Which transactions a void attestation must cover.
CREATE INDEX signing_records_by_payment ON signing_records (payment, generation) INCLUDE (tx_hash) WHERE pays;
