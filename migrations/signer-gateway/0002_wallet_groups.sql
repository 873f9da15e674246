-- Seeds, sealed. The ciphertext is bound to id and version: a row copied over another does not open.
CREATE TABLE wallet_groups (
    id             uuid        PRIMARY KEY,
    name           text        NOT NULL,
    purpose        text        NOT NULL,
    -- Address of the first EVM wallet: makes importing one phrase twice visible without opening anything.
    fingerprint    text        NOT NULL,
    sealed_version smallint    NOT NULL,
    sealed_nonce   bytea       NOT NULL,
    sealed_seed    bytea       NOT NULL,
    created_by     text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT wallet_groups_name_unique UNIQUE (name),
    CONSTRAINT wallet_groups_name_length CHECK (char_length(name) BETWEEN 1 AND 64),
    CONSTRAINT wallet_groups_purpose_known CHECK (purpose IN ('operation', 'deposit')),
    -- One seed in two groups would let a deposit group's keys act as an operation group's.
    CONSTRAINT wallet_groups_seed_unique UNIQUE (fingerprint),
    -- A 64-byte seed and its 16-byte tag.
    CONSTRAINT wallet_groups_seed_length CHECK (octet_length(sealed_seed) = 80)
);
