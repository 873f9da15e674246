-- $1 job, $2 status it was read in, $3 new status, $4 tries to add, $5 waits in a row, $6 error, $7 blocked reason,
-- $8 request, $9 reason to close, $10 hash that counts, $11 whether it ends, $12 whether it is retried after closing,
-- $13 whether nothing is reserved for it any more
UPDATE jobs SET
    status = $3, tries = tries + $4, waits = $5, error = $6, blocked_reason = $7, wanted = $8,
    -- An end leaves on record why the job was being closed.
    cancel_reason = CASE WHEN $11 THEN cancel_reason ELSE $9 END,
    retreating = CASE WHEN $11 THEN retreating ELSE $12 END,
    tx_hash = $10,
    reserved = reserved AND NOT $13,
    finished_at = CASE WHEN $11 THEN coalesce(finished_at, now()) END,
    processing_since = CASE WHEN $3 = 'processing' THEN coalesce(processing_since, now()) END,
    updated_at = now()
WHERE id = $1 AND status = $2
