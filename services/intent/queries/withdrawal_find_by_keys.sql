-- $1 idempotency keys
SELECT request.id, request.origin, request.idempotency_key, request.payload_hash, request.user_id, request.chain,
       request.asset, request.amount_raw::text AS amount_raw, request.decimals, request.destination, request.memo,
       request.priority_rank, request.labels, request.requested_by, request.on_behalf_of, request.required_approvals, request.status,
       request.blocked_reason, request.blocked_changed_at, request.failure_reason, request.final_tx_hash,
       request.final_block, request.last_sequence, request.created_at, request.updated_at, request.approved_at,
       request.queued_at, request.finished_at, import.from_address, import.tx_hash AS import_tx_hash
FROM withdrawal_requests AS request
LEFT JOIN imports AS import ON import.request_id = request.id
WHERE request.idempotency_key = ANY ($1)
