-- Everything a batch decided, in one statement: all of it, or nothing when the head moved since the batch was loaded.
WITH moved AS (
    UPDATE audit_head SET sequence = $3, hash = $4 WHERE sequence = $1 AND hash = $2 RETURNING sequence
), logged AS (
    INSERT INTO audit_log (sequence, at, caller, action, decision, reason, detail, previous_hash, hash)
    SELECT item.sequence, $5, item.caller, item.action, item.decision, item.reason, item.detail,
           item.previous_hash, item.hash
    FROM unnest($6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[],
                $13::bytea[])
         AS item (sequence, caller, action, decision, reason, detail, previous_hash, hash)
    WHERE EXISTS (SELECT 1 FROM moved)
), recorded AS (
    INSERT INTO signing_records (idempotency_key, payment, generation, pays, request, from_address,
                                 raw_transaction, tx_hash, audit_sequence, signed_at)
    SELECT item.*, $5
    FROM unnest($14::text[], $15::text[], $16::integer[], $17::boolean[], $18::text[], $19::text[], $20::bytea[],
                $21::bytea[], $22::bigint[]) AS item
    WHERE EXISTS (SELECT 1 FROM moved)
), guarded AS (
    INSERT INTO payments (payment, job_id, chain, wallet, asset, destination, amount, call_hash, may_shrink,
                          generation, nonce, tron_id, expires_ms, ceiling, tip, gas_limit, state, live, bumps,
                          first_paid_at, updated_at)
    SELECT item.payment, item.job_id, item.chain, item.wallet, item.asset, item.destination, item.amount::numeric,
           item.call_hash, item.may_shrink, item.generation, item.nonce, item.tron_id, item.expires_ms,
           item.ceiling::numeric, item.tip::numeric, item.gas_limit, item.state, item.live, item.bumps,
           item.first_paid_at, $5
    FROM unnest($23::text[], $24::uuid[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[],
                $30::bytea[], $31::boolean[], $32::integer[], $33::bigint[], $34::bytea[], $35::bigint[],
                $36::text[], $37::text[], $38::bigint[], $39::text[], $40::boolean[], $41::integer[],
                $42::timestamptz[])
         AS item (payment, job_id, chain, wallet, asset, destination, amount, call_hash, may_shrink, generation,
                  nonce, tron_id, expires_ms, ceiling, tip, gas_limit, state, live, bumps, first_paid_at)
    WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (payment) DO UPDATE SET
        -- Chain, wallet and job are set as well, so that a trigger can refuse a change instead of losing it.
        job_id = excluded.job_id, chain = excluded.chain, wallet = excluded.wallet,
        asset = excluded.asset, destination = excluded.destination, amount = excluded.amount,
        call_hash = excluded.call_hash, may_shrink = excluded.may_shrink, generation = excluded.generation,
        nonce = excluded.nonce, tron_id = excluded.tron_id, expires_ms = excluded.expires_ms,
        ceiling = excluded.ceiling, tip = excluded.tip, gas_limit = excluded.gas_limit, state = excluded.state,
        live = excluded.live, bumps = excluded.bumps, first_paid_at = excluded.first_paid_at,
        updated_at = excluded.updated_at
), placed AS (
    INSERT INTO slots (chain, wallet, nonce, payment, generation)
    SELECT * FROM unnest($43::text[], $44::text[], $45::bigint[], $46::text[], $47::integer[]) AS item
    WHERE EXISTS (SELECT 1 FROM moved)
), fenced AS (
    INSERT INTO fences (job_id, epoch)
    SELECT * FROM unnest($48::uuid[], $49::bigint[]) AS item
    WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (job_id) DO UPDATE SET epoch = greatest(fences.epoch, excluded.epoch)
), counted AS (
    INSERT INTO limit_usage (chain, counter, minute, amount)
    SELECT item.chain, item.counter, date_trunc('minute', $5::timestamptz), item.amount::numeric
    FROM unnest($50::text[], $51::text[], $52::text[]) AS item (chain, counter, amount)
    WHERE EXISTS (SELECT 1 FROM moved)
    ON CONFLICT (chain, counter, minute) DO UPDATE SET amount = limit_usage.amount + excluded.amount
)
SELECT count(*) AS moved FROM moved
