-- $1 chains, $2 assets
SELECT chain, asset, address_format, decimals, contract_address, enabled, min_withdrawal_raw::text AS min_withdrawal_raw,
       revision
FROM catalogue_entries
WHERE (chain, asset) IN (SELECT * FROM unnest($1::text[], $2::text[]))
