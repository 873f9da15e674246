INSERT INTO withdrawal_requests (
    id, origin, idempotency_key, payload_hash, user_id, chain, asset, amount_raw, decimals, destination, memo,
    priority_rank, labels, requested_by, required_approvals, status, last_sequence, created_at, updated_at, queued_at,
    on_behalf_of)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::numeric, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
-- Waits for a parallel insert of the same key or id, and then steps back.
ON CONFLICT DO NOTHING
