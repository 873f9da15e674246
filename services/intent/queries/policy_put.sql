-- $1 chain, $2 asset, $3 approvers, $4 decimals, $5 by whom
INSERT INTO approval_policies (chain, asset, approvers, decimals, updated_by, updated_at)
VALUES ($1, $2, $3, $4, $5, now())
-- The row's lock, taken here, makes two operators who replace the same policy do so one after the other.
ON CONFLICT ON CONSTRAINT approval_policies_pkey DO UPDATE SET
    approvers = excluded.approvers, decimals = excluded.decimals, updated_by = excluded.updated_by,
    updated_at = excluded.updated_at
