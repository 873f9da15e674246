-- One array for each column; $1 jobs and $2 versions say which rows are expected.
UPDATE watches AS w
SET round = n.round,
    nonce = n.nonce,
    status = n.status,
    tx_hash = n.tx_hash,
    block_number = n.block_number,
    block_hash = n.block_hash,
    value_moved = n.value_moved,
    delayed_reason = n.delayed_reason,
    contradicted_at = CASE WHEN n.contradicted THEN coalesce(w.contradicted_at, now()) END,
    -- What begins to wait, again or for a newer transaction, is looked up at once.
    waiting_since = CASE WHEN n.status = 'waiting' AND (w.status <> 'waiting' OR n.renewed) THEN now() ELSE w.waiting_since END,
    check_due_at = CASE WHEN n.status = 'waiting' AND (w.status <> 'waiting' OR n.renewed) THEN now() ELSE w.check_due_at END,
    since_block = CASE WHEN n.round > w.round
        THEN coalesce((SELECT final_number FROM chain_loops AS l WHERE l.chain = w.chain), 0) ELSE w.since_block END,
    finished_at = CASE WHEN n.status IN ('settled', 'reverted', 'void', 'cancelled') THEN coalesce(w.finished_at, now()) END,
    version = w.version + 1
FROM unnest(
    $1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::text[], $6::bytea[], $7::bigint[], $8::bytea[],
    $9::boolean[], $10::text[], $11::boolean[], $12::boolean[]
) AS n (
    job_id, version, round, nonce, status, tx_hash, block_number, block_hash,
    value_moved, delayed_reason, contradicted, renewed
)
WHERE w.job_id = n.job_id AND w.version = n.version
