-- A read copy of execution's catalogue: what may be withdrawn, how addresses look, and which are our own.
CREATE TABLE catalogue_entries (
    chain              text          NOT NULL,
    asset              text          NOT NULL,
    address_format     text          NOT NULL,
    decimals           smallint      NOT NULL,
    -- NULL for the chain's native asset.
    contract_address   text,
    enabled            boolean       NOT NULL,
    min_withdrawal_raw numeric(78,0) NOT NULL,
    -- Grows with each change; an older one that arrives late is ignored.
    revision           bigint        NOT NULL,
    own_addresses      text[]        NOT NULL,
    updated_at         timestamptz   NOT NULL,
    CONSTRAINT catalogue_entries_pkey PRIMARY KEY (chain, asset),
    CONSTRAINT catalogue_entries_format_known CHECK (address_format IN ('evm', 'tron')),
    CONSTRAINT catalogue_entries_decimals_range CHECK (decimals BETWEEN 0 AND 77),
    CONSTRAINT catalogue_entries_minimum_positive CHECK (min_withdrawal_raw >= 0),
    CONSTRAINT catalogue_entries_revision_positive CHECK (revision >= 0)
);
