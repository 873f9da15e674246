WITH appended AS (
    INSERT INTO audit_log (sequence, at, caller, action, decision, reason, detail, previous_hash, hash)
    SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[],
                         $7::text[], $8::bytea[], $9::bytea[])
)
UPDATE audit_head SET sequence = $10, hash = $11
