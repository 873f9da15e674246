-- $1 request, $2 approver, $3 requester, $4 signature, $5 expiry, $6 when
INSERT INTO approvals (request_id, approver, requested_by, signature, expires_at, approved_at)
VALUES ($1, $2, $3, $4, $5, $6)
-- Only an expired approval is renewed; a usable one stays, and zero rows is a conflict.
ON CONFLICT ON CONSTRAINT approvals_once_per_approver DO UPDATE SET
    signature = excluded.signature, expires_at = excluded.expires_at, approved_at = excluded.approved_at
WHERE approvals.expires_at <= excluded.approved_at
