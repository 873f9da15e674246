-- $1 chain, $2 asset, $3 address format, $4 decimals, $5 contract, $6 enabled, $7 minimum, $8 revision, $9 own addresses
INSERT INTO catalogue_entries AS known (
    chain, asset, address_format, decimals, contract_address, enabled, min_withdrawal_raw, revision, own_addresses,
    updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7::numeric, $8, $9, now())
ON CONFLICT ON CONSTRAINT catalogue_entries_pkey DO UPDATE SET
    address_format = excluded.address_format, decimals = excluded.decimals,
    contract_address = excluded.contract_address, enabled = excluded.enabled,
    min_withdrawal_raw = excluded.min_withdrawal_raw, revision = excluded.revision,
    own_addresses = excluded.own_addresses, updated_at = excluded.updated_at
-- Messages may overtake one another or come twice; only a newer one counts.
WHERE known.revision < excluded.revision
