-- One array for each column. Compare-and-set: $2 are the stored sequences, $3 the new ones.
UPDATE withdrawal_requests AS request SET
    last_sequence = n.sequence, status = n.status, blocked_reason = n.blocked_reason,
    blocked_changed_at = n.blocked_changed_at, failure_reason = n.failure_reason, final_tx_hash = n.final_tx_hash,
    final_block = n.final_block, updated_at = n.updated_at, approved_at = n.approved_at, queued_at = n.queued_at,
    finished_at = n.finished_at
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[]
) AS n (
    id, read, sequence, status, blocked_reason, blocked_changed_at, failure_reason, final_tx_hash,
    final_block, updated_at, approved_at, queued_at, finished_at
)
WHERE request.id = n.id AND request.last_sequence = n.read
  -- Repeats the join condition, so that whatever the plan of the join, only these rows are read.
  AND request.id = ANY ((SELECT $1::uuid[])::uuid[])
