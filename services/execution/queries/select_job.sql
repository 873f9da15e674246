-- Everything about a job; the conditions are added by the caller.
SELECT
    j.id, j.queue, j.withdrawal_id, j.chain, j.asset_id, a.symbol, a.decimals, a.contract_address,
    a.enabled AND c.enabled AS asset_enabled, c.kind, j.wallet_id, w.address, w.wallet_group_id, w.derivation_index,
    j.to_address, j.amount_raw::text, j.rank, j.status, j.tries, j.max_tries, j.waits, j.error, j.blocked_reason,
    j.wanted, j.cancel_reason, j.retreating, j.tx_hash, j.requested_by, j.on_behalf_of, j.approvals, j.void_proof, j.reserved, j.fee_paid_raw::text,
    j.imported, j.filler, j.trace, j.created_at, j.updated_at, j.broadcast_at, j.finished_at,
    held.nonce,
    -- Only a job that is being confirmed can have been rejected, so it is looked up only there.
    j.status = 'confirming' AND held.nonce IS NOT NULL AND coalesce((
        SELECT t.rejected FROM attempts AS t
        WHERE t.job_id = j.id AND t.nonce = held.nonce AND t.status IN ('signed', 'broadcast')
        ORDER BY t.number DESC LIMIT 1
    ), false) AS rejected,
    (SELECT max(due_at) FROM job_ready AS r WHERE r.job_id = j.id) AS due_at,
    -- Not EXISTS, which the planner may answer for a whole list by reading all attempts and all verdicts.
    (SELECT t.id FROM attempts AS t WHERE t.job_id = j.id AND t.tx_hash IS NOT NULL LIMIT 1) IS NOT NULL AS ever_signed,
    (SELECT v.id FROM verdicts AS v WHERE v.job_id = j.id AND v.finding = 'contradicted' LIMIT 1) IS NOT NULL AS contradicted
FROM jobs AS j
JOIN assets AS a ON a.id = j.asset_id
JOIN chains AS c ON c.name = j.chain
LEFT JOIN operation_wallets AS w ON w.id = j.wallet_id
LEFT JOIN lane_nonces AS held ON held.job_id = j.id AND held.state = 'open'
