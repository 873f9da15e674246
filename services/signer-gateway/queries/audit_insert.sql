WITH appended AS (
    INSERT INTO audit_log (sequence, at, caller, action, decision, reason, detail, previous_hash, hash)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
)
UPDATE audit_head SET sequence = $1, hash = $9
