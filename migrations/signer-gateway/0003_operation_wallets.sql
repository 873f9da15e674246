-- Addresses to which sweeps may go, and to which withdrawals may not.
CREATE TABLE operation_wallets (
    chain            text        NOT NULL,
    address          text        NOT NULL,
    -- Null for cold storage, which is listed in the signer's configuration.
    wallet_group_id  uuid        REFERENCES wallet_groups (id),
    derivation_index bigint,
    registered_by    text        NOT NULL,
    registered_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operation_wallets_pkey PRIMARY KEY (chain, address),
    CONSTRAINT operation_wallets_key_whole CHECK ((wallet_group_id IS NULL) = (derivation_index IS NULL)),
    CONSTRAINT operation_wallets_index_range CHECK (derivation_index BETWEEN 0 AND 2147483647)
);
