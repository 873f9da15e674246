-- The operator's wallets and what they hold. Keys live in the signer; here are addresses only.

CREATE TABLE operation_wallets (
    id               uuid        NOT NULL,
    chain            text        NOT NULL,
    address          text        NOT NULL,
    role             text        NOT NULL,
    status           text        NOT NULL,
    wallet_group_id  uuid,
    derivation_index integer,
    label            text        NOT NULL,
    -- Part of the order in which wallets are chosen: the one that rested longest goes first.
    last_used_at     timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operation_wallets_pkey PRIMARY KEY (id),
    CONSTRAINT operation_wallets_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    -- One address, one set of counters: a second row would hand out its nonces twice.
    CONSTRAINT operation_wallets_address_key UNIQUE (chain, address),
    CONSTRAINT operation_wallets_key_key UNIQUE (chain, wallet_group_id, derivation_index),
    CONSTRAINT operation_wallets_role_known CHECK (role IN ('hot_wallet', 'gas_wallet', 'cold_wallet')),
    CONSTRAINT operation_wallets_status_known CHECK (status IN ('active', 'paused', 'retired')),
    -- Only cold storage, which never pays, may have its key elsewhere.
    CONSTRAINT operation_wallets_payer_has_key CHECK (
        role = 'cold_wallet' OR (wallet_group_id IS NOT NULL AND derivation_index IS NOT NULL)
    )
    -- Updated on every choice of a wallet; room on the page keeps those updates out of the indexes.
) WITH (fillfactor = 50);

CREATE TABLE wallet_holdings (
    wallet_id    uuid          NOT NULL,
    asset_id     uuid          NOT NULL,
    balance_raw  numeric(78,0) NOT NULL DEFAULT 0,
    -- Spoken for by jobs that are not finished. May exceed the balance for a while: a payment that is mined and not yet
    -- final has left the balance and is still reserved. That errs towards paying less, never towards paying twice.
    reserved_raw numeric(78,0) NOT NULL DEFAULT 0,
    -- The balance is at least as new as this block: a payment settled in a later one is still to be taken off.
    block_number bigint        NOT NULL DEFAULT 0,
    refreshed_at timestamptz,
    CONSTRAINT wallet_holdings_pkey PRIMARY KEY (wallet_id, asset_id),
    CONSTRAINT wallet_holdings_wallet_fkey FOREIGN KEY (wallet_id) REFERENCES operation_wallets (id),
    CONSTRAINT wallet_holdings_asset_fkey FOREIGN KEY (asset_id) REFERENCES assets (id),
    CONSTRAINT wallet_holdings_positive CHECK (balance_raw >= 0 AND reserved_raw >= 0 AND block_number >= 0)
) WITH (fillfactor = 50);
