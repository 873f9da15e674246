-- $1 chains, $2 addresses. For each place in these lists: whether it is a token's contract, and whether it is an own wallet.
SELECT asked.place,
       coalesce(bool_or(entry.contract_address = asked.address), false) AS contract,
       coalesce(bool_or(asked.address = ANY (entry.own_addresses)), false) AS own
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (chain, address, place)
JOIN catalogue_entries AS entry ON entry.chain = asked.chain
GROUP BY asked.place
