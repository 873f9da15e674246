-- $1 statuses, $2 customer, $3 chain, $4 asset, $5 destination, $6 created from, $7 created before, $8 and $9 the row before
-- this page, $10 how many; NULL admits all
SELECT request.id, request.origin, request.idempotency_key, request.payload_hash, request.user_id, request.chain,
       request.asset, request.amount_raw::text AS amount_raw, request.decimals, request.destination, request.memo,
       request.priority_rank, request.labels, request.requested_by, request.on_behalf_of, request.required_approvals, request.status,
       request.blocked_reason, request.blocked_changed_at, request.failure_reason, request.final_tx_hash,
       request.final_block, request.last_sequence, request.created_at, request.updated_at, request.approved_at,
       request.queued_at, request.finished_at, import.from_address, import.tx_hash AS import_tx_hash
FROM withdrawal_requests AS request
LEFT JOIN imports AS import ON import.request_id = request.id
WHERE ($1::text[] IS NULL OR request.status = ANY ($1))
  AND ($2::uuid IS NULL OR request.user_id = $2)
  AND ($3::text IS NULL OR request.chain = $3)
  AND ($4::text IS NULL OR request.asset = $4)
  AND ($5::text IS NULL OR request.destination = $5)
  AND ($6::timestamptz IS NULL OR request.created_at >= $6)
  AND ($7::timestamptz IS NULL OR request.created_at < $7)
  AND ($8::timestamptz IS NULL OR (request.created_at, request.id) < ($8, $9::uuid))
ORDER BY request.created_at DESC, request.id DESC
LIMIT $10
