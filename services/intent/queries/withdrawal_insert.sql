-- $1 ids, $2 origins, $3 keys, $4 hashes, $5 customers, $6 chains, $7 assets, $8 amounts, $9 decimals, $10 destinations,
-- $11 memos, $12 priorities, $13 labels, $14 requesters, $15 approvals required, $16 states, $17 created, $18 updated,
-- $19 queued, $20 on whose behalf
INSERT INTO withdrawal_requests (
    id, origin, idempotency_key, payload_hash, user_id, chain, asset, amount_raw, decimals, destination, memo,
    priority_rank, labels, requested_by, required_approvals, status, created_at, updated_at, queued_at, on_behalf_of,
    last_sequence)
SELECT id, origin, key, hash, customer, chain, asset, amount::numeric, decimals, destination, memo,
       priority, labels, requester, required, status, created_at, updated_at, queued_at, behalf,
       1
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::text[], $7::text[], $8::text[],
            $9::smallint[], $10::text[], $11::text[], $12::smallint[], $13::jsonb[], $14::text[], $15::integer[],
            $16::text[], $17::timestamptz[], $18::timestamptz[], $19::timestamptz[], $20::text[])
     AS new (id, origin, key, hash, customer, chain, asset, amount, decimals, destination, memo, priority, labels,
             requester, required, status, created_at, updated_at, queued_at, behalf)
-- In one order everywhere, so that two writers cannot deadlock.
ORDER BY key
-- Waits for a parallel insert of the same key or id; one row too few is then a conflict.
ON CONFLICT DO NOTHING
