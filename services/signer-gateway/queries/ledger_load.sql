-- Everything the ledger remembers about the requests of a batch, in one statement and hence one snapshot: one row per
-- request, and beside each the head, the freezes and the counters. A write that finds the head unmoved finds all of this
-- unchanged, because whatever changes any of it appends to the log.
WITH head AS MATERIALIZED (
    SELECT sequence, hash, clock_timestamp() AS at FROM audit_head
), frozen AS MATERIALIZED (
    SELECT coalesce(array_agg(chain), '{}') AS chains FROM freezes
), used AS MATERIALIZED (
    -- The oldest minute of a window counts whole: never less than what was used.
    SELECT coalesce(array_agg(item.chain), '{}') AS chains,
           coalesce(array_agg(item.counter), '{}') AS counters,
           coalesce(array_agg(usage.amount::text), '{}') AS amounts
    FROM unnest($8::text[], $9::text[], $10::bigint[]) AS item (chain, counter, window_s)
    CROSS JOIN LATERAL (
        SELECT date_trunc('minute', now() - make_interval(secs => item.window_s)) AS start
    ) AS span
    -- Minutes up to the first full hour, hours from there on.
    CROSS JOIN LATERAL (
        SELECT date_trunc('hour', span.start + interval '59 minutes', 'UTC') AS start
    ) AS full_hours
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(part.amount), 0) AS amount
        FROM (
            SELECT amount FROM limit_usage
            WHERE chain = item.chain AND counter = item.counter
              AND minute >= span.start AND minute < full_hours.start
            UNION ALL
            SELECT amount FROM limit_hours
            WHERE chain = item.chain AND counter = item.counter AND hour >= full_hours.start
        ) AS part
    ) AS usage
)
SELECT
    item.place,
    head.sequence          AS head_sequence,
    head.hash              AS head_hash,
    head.at                AS head_at,
    frozen.chains          AS frozen,
    used.chains            AS used_chains,
    used.counters          AS used_counters,
    used.amounts           AS used_amounts,
    record.request         AS record_request,
    record.from_address    AS record_from,
    record.raw_transaction AS record_raw,
    record.tx_hash         AS record_tx_hash,
    payment.payment        AS payment,
    payment.job_id, payment.chain, payment.wallet, payment.asset, payment.destination,
    payment.amount::text   AS amount,
    payment.call_hash, payment.may_shrink, payment.generation, payment.nonce, payment.tron_id, payment.expires_ms,
    payment.ceiling::text  AS ceiling,
    payment.tip::text      AS tip,
    payment.gas_limit, payment.state, payment.live, payment.bumps, payment.first_paid_at,
    CASE WHEN payment.payment IS NOT NULL THEN ARRAY(
        SELECT signed.tx_hash FROM signing_records AS signed
        WHERE signed.payment = payment.payment AND signed.generation = payment.generation AND signed.pays
    ) END                  AS signed,
    slot.payment           AS slot_payment,
    slot.generation        AS slot_generation,
    fence.epoch            AS fence_epoch,
    wallet.address IS NOT NULL AS destination_registered,
    wallet.wallet_group_id AS destination_group
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[])
     WITH ORDINALITY AS item (key, payment, job_id, chain, wallet, nonce, destination, place)
CROSS JOIN head
CROSS JOIN frozen
CROSS JOIN used
-- LIMIT keeps each lookup a lookup: a plan cached while the tables were small would otherwise join by reading them whole.
LEFT JOIN LATERAL (
    SELECT * FROM signing_records WHERE idempotency_key = item.key LIMIT 1
) AS record ON true
LEFT JOIN LATERAL (SELECT * FROM payments WHERE payments.payment = item.payment LIMIT 1) AS payment ON true
LEFT JOIN LATERAL (
    SELECT * FROM slots WHERE chain = item.chain AND wallet = item.wallet AND nonce = item.nonce LIMIT 1
) AS slot ON true
LEFT JOIN LATERAL (SELECT * FROM fences WHERE job_id = item.job_id LIMIT 1) AS fence ON true
LEFT JOIN LATERAL (
    SELECT address, wallet_group_id FROM operation_wallets
    WHERE chain = item.chain AND address = item.destination LIMIT 1
) AS wallet ON true
