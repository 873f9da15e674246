-- Chains and assets. All of it is data: no chain or asset is known to the code.

-- Grows with every change of the catalogue. Drawn under the lock of the chain's row, so that the order of revisions is the
-- order of commits and a receiver may ignore whatever is older than what it has.
CREATE SEQUENCE catalogue_revision AS bigint CACHE 1;

CREATE TABLE chains (
    name               text          NOT NULL,
    kind               text          NOT NULL,
    network_id         bigint        NOT NULL,
    nodes              text[]        NOT NULL,
    finality           text          NOT NULL,
    depth              integer       NOT NULL,
    dynamic_fees       boolean       NOT NULL,
    max_gas_price      numeric(78,0) NOT NULL,
    max_fee            numeric(78,0) NOT NULL,
    bump_after_seconds integer       NOT NULL,
    enabled            boolean       NOT NULL,
    native_asset       text          NOT NULL,
    revision           bigint        NOT NULL,
    created_at         timestamptz   NOT NULL DEFAULT now(),
    updated_at         timestamptz   NOT NULL DEFAULT now(),
    CONSTRAINT chains_pkey PRIMARY KEY (name),
    CONSTRAINT chains_kind_known CHECK (kind IN ('evm', 'tron')),
    CONSTRAINT chains_finality_known CHECK (finality IN ('depth', 'chain')),
    -- A depth of zero would call the newest block final.
    CONSTRAINT chains_depth_counts CHECK (finality <> 'depth' OR depth > 0),
    CONSTRAINT chains_has_nodes CHECK (cardinality(nodes) > 0),
    CONSTRAINT chains_network_positive CHECK (network_id > 0),
    CONSTRAINT chains_caps_positive CHECK (max_gas_price > 0 AND max_fee > 0)
);

CREATE TABLE assets (
    id                 uuid          NOT NULL,
    chain              text          NOT NULL,
    symbol             text          NOT NULL,
    is_native          boolean       NOT NULL,
    contract_address   text,
    decimals           smallint      NOT NULL,
    enabled            boolean       NOT NULL,
    min_withdrawal_raw numeric(78,0) NOT NULL,
    created_at         timestamptz   NOT NULL DEFAULT now(),
    updated_at         timestamptz   NOT NULL DEFAULT now(),
    CONSTRAINT assets_pkey PRIMARY KEY (id),
    CONSTRAINT assets_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    -- The natural key of every interface.
    CONSTRAINT assets_chain_symbol_key UNIQUE (chain, symbol),
    -- Two symbols for one contract would count one balance twice.
    CONSTRAINT assets_chain_contract_key UNIQUE (chain, contract_address),
    CONSTRAINT assets_native_has_no_contract CHECK (is_native = (contract_address IS NULL)),
    CONSTRAINT assets_decimals_known CHECK (decimals BETWEEN 0 AND 77),
    CONSTRAINT assets_minimum_positive CHECK (min_withdrawal_raw >= 0)
);

-- One native asset for each chain.
CREATE UNIQUE INDEX assets_one_native ON assets (chain) WHERE is_native;
