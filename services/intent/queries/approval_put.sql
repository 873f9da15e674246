-- $1 requests, $2 approvers, $3 requesters, $4 signatures, $5 expiries, $6 when, $7 on whose behalf, $8 signatures that no longer count
INSERT INTO approvals (request_id, approver, requested_by, signature, expires_at, approved_at, on_behalf_of)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::timestamptz[], $6::timestamptz[], $7::text[])
-- Only a signature that was read and no longer counts is replaced; one row too few is then a conflict.
ON CONFLICT ON CONSTRAINT approvals_once_per_approver DO UPDATE SET
    signature = excluded.signature, expires_at = excluded.expires_at, approved_at = excluded.approved_at
WHERE approvals.signature = ANY ($8::bytea[])
