-- $1 job, $2 status it was read in, $3 new status, $4 tries to add, $5 waits in a row, $6 error, $7 blocked reason,
-- $8 wanted, $9 cancel reason, $10 hash that counts, $11 whether it ends, $12 whether it retreats, $13 whether nothing is
-- reserved for it any more
UPDATE jobs SET
    status = $3, tries = tries + $4, waits = $5, error = $6, blocked_reason = $7, wanted = $8, cancel_reason = $9,
    retreating = $12,
    tx_hash = $10,
    reserved = reserved AND NOT $13,
    finished_at = CASE WHEN $11 THEN coalesce(finished_at, now()) END,
    processing_since = CASE WHEN $3 = 'processing' THEN coalesce(processing_since, now()) END,
    updated_at = now()
WHERE id = $1 AND status = $2
