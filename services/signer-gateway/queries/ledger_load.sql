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
LEFT JOIN signing_records AS record ON record.idempotency_key = item.key
LEFT JOIN payments AS payment ON payment.payment = item.payment
LEFT JOIN slots AS slot ON slot.chain = item.chain AND slot.wallet = item.wallet AND slot.nonce = item.nonce
LEFT JOIN fences AS fence ON fence.job_id = item.job_id
LEFT JOIN operation_wallets AS wallet ON wallet.chain = item.chain AND wallet.address = item.destination
