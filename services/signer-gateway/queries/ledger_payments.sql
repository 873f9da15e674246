INSERT INTO payments (payment, job_id, chain, wallet, asset, destination, amount, call_hash, may_shrink, generation,
                      nonce, tron_id, expires_ms, ceiling, tip, gas_limit, state, live, bumps, first_paid_at,
                      updated_at)
SELECT item.payment, item.job_id, item.chain, item.wallet, item.asset, item.destination, item.amount::numeric,
       item.call_hash, item.may_shrink, item.generation, item.nonce, item.tron_id, item.expires_ms,
       item.ceiling::numeric, item.tip::numeric, item.gas_limit, item.state, item.live, item.bumps,
       item.first_paid_at, $21
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::boolean[], $10::integer[], $11::bigint[], $12::bytea[], $13::bigint[], $14::text[], $15::text[],
            $16::bigint[], $17::text[], $18::boolean[], $19::integer[], $20::timestamptz[])
     AS item (payment, job_id, chain, wallet, asset, destination, amount, call_hash, may_shrink, generation, nonce,
              tron_id, expires_ms, ceiling, tip, gas_limit, state, live, bumps, first_paid_at)
ON CONFLICT (payment) DO UPDATE SET
    asset = excluded.asset, destination = excluded.destination, amount = excluded.amount,
    call_hash = excluded.call_hash, may_shrink = excluded.may_shrink, generation = excluded.generation,
    nonce = excluded.nonce, tron_id = excluded.tron_id, expires_ms = excluded.expires_ms,
    ceiling = excluded.ceiling, tip = excluded.tip, gas_limit = excluded.gas_limit, state = excluded.state,
    live = excluded.live, bumps = excluded.bumps, first_paid_at = excluded.first_paid_at,
    updated_at = excluded.updated_at
-- Chain, wallet and job never change: a row that says otherwise belongs to a bug, and the batch must fail.
WHERE payments.job_id = excluded.job_id AND payments.chain = excluded.chain AND payments.wallet = excluded.wallet
