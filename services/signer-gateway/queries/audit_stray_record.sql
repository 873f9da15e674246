-- A record whose log entry is missing, or tells of another transaction.
SELECT record.idempotency_key, record.audit_sequence
FROM signing_records AS record
LEFT JOIN audit_log AS entry ON entry.sequence = record.audit_sequence
WHERE entry.sequence IS NULL
   OR entry.detail::jsonb ->> 'idempotency_key' IS DISTINCT FROM record.idempotency_key
   OR entry.detail::jsonb ->> 'raw_sha256' IS DISTINCT FROM encode(sha256(record.raw_transaction), 'hex')
ORDER BY record.audit_sequence
LIMIT 1
