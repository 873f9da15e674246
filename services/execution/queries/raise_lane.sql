-- $1 chain, $2 address, $3 nonces used with pools counted in, $4 nonces used in blocks; both as enough nodes say
INSERT INTO lanes (chain, address, next_nonce, mined_seen) VALUES ($1, $2, $3, $4)
ON CONFLICT (chain, address) DO UPDATE SET
    -- Nonces that were used and that we never handed out: the key is used elsewhere.
    foreign_seen = lanes.foreign_seen + GREATEST(excluded.next_nonce - lanes.next_nonce, 0),
    next_nonce = GREATEST(lanes.next_nonce, excluded.next_nonce),
    mined_seen = GREATEST(lanes.mined_seen, excluded.mined_seen),
    updated_at = now()
RETURNING next_nonce, halted_reason, mined_seen
