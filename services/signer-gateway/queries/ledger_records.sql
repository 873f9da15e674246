INSERT INTO signing_records (idempotency_key, payment, generation, pays, request, from_address, raw_transaction,
                             tx_hash, audit_sequence, signed_at)
SELECT item.*, $10
FROM unnest($1::text[], $2::text[], $3::integer[], $4::boolean[], $5::text[], $6::text[], $7::bytea[], $8::bytea[],
            $9::bigint[]) AS item
