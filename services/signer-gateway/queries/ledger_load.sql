-- Everything the ledger remembers about the requests of a batch, one row per request. Runs under the head's lock, as a
-- statement of its own: its snapshot must be younger than the lock, or a freeze committed while waiting goes unseen.
SELECT
    item.place,
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
    ARRAY(SELECT frozen.chain FROM freezes AS frozen) AS frozen
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[])
     WITH ORDINALITY AS item (key, payment, job_id, chain, wallet, nonce, destination, place)
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
    SELECT * FROM operation_wallets WHERE chain = item.chain AND address = item.destination LIMIT 1
) AS wallet ON true
