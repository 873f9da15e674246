-- A record whose log entry is missing or tells of another transaction; or an entry that says "signed" while no record has that
-- signature. Either would be a transaction that nobody can account for. Looks at the entries after $1 and up to $2.
WITH told AS (
    SELECT entry.sequence, entry.reason,
           parts.detail ->> 'idempotency_key'      AS key,
           parts.detail -> 'request' ->> 'payment' AS payment,
           parts.detail ->> 'tx_hash'              AS tx_hash,
           parts.detail ->> 'raw_sha256'           AS raw_sha256
    FROM audit_log AS entry
    -- Each is parsed once.
    CROSS JOIN LATERAL (SELECT entry.detail::jsonb AS detail OFFSET 0) AS parts
    WHERE entry.sequence > $1 AND entry.sequence <= $2
      AND entry.action = 'sign' AND entry.decision = 'allowed'
), stray AS (
    SELECT coalesce(record.idempotency_key, told.key) AS key,
           coalesce(told.sequence, record.audit_sequence) AS sequence
    FROM (SELECT * FROM told WHERE reason <> 'idempotency.replayed') AS told
    -- Both ways at once, and never by comparing all with all, whatever the planner believes about the tables.
    FULL JOIN (SELECT * FROM signing_records WHERE audit_sequence > $1 AND audit_sequence <= $2) AS record
        ON record.idempotency_key = told.key AND record.audit_sequence = told.sequence
    WHERE told.sequence IS NULL
       OR record.idempotency_key IS NULL
       OR told.payment IS DISTINCT FROM record.payment
       OR told.tx_hash IS DISTINCT FROM '0x' || encode(record.tx_hash, 'hex')
       OR told.raw_sha256 IS DISTINCT FROM encode(sha256(record.raw_transaction), 'hex')
    UNION ALL
    -- The same bytes given again have an entry each; their record names the first.
    SELECT told.key, told.sequence
    FROM told
    LEFT JOIN signing_records AS record ON record.idempotency_key = told.key
    WHERE told.reason = 'idempotency.replayed'
      AND (told.payment IS DISTINCT FROM record.payment
           OR told.tx_hash IS DISTINCT FROM '0x' || encode(record.tx_hash, 'hex'))
)
SELECT coalesce(key, '') AS idempotency_key, sequence AS audit_sequence
FROM stray
ORDER BY sequence
LIMIT 1
