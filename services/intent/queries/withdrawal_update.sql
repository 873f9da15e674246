-- Compare-and-set: $2 is the sequence that was read, $3 the new one.
UPDATE withdrawal_requests SET
    last_sequence = $3, status = $4, blocked_reason = $5, blocked_changed_at = $6, failure_reason = $7,
    final_tx_hash = $8, final_block = $9, updated_at = $10, approved_at = $11, queued_at = $12, finished_at = $13
WHERE id = $1 AND last_sequence = $2
