-- Chains without nonces bind an attempt to a time window instead: the block it refers to, until when it may be included, and
-- the time it carries, which keeps two equal payments apart. There `nonce` is a place in the wallet's own line and never
-- leaves this database: it keeps one open attempt for each job, and what is committed, exactly as it does for nonces.
ALTER TABLE attempts
    ADD COLUMN reference_hash bytea,
    ADD COLUMN expiration_ms bigint,
    ADD COLUMN made_ms bigint,
    ADD CONSTRAINT attempts_window_whole CHECK (
        (expiration_ms IS NULL) = (reference_hash IS NULL) AND (expiration_ms IS NULL) = (made_ms IS NULL)
    ),
    ADD CONSTRAINT attempts_window_fits CHECK (octet_length(reference_hash) = 32 AND made_ms < expiration_ms);

-- A place is also given back when the window closed without a payment.
ALTER TABLE lane_nonces
    DROP CONSTRAINT lane_nonces_closed_by_known,
    ADD CONSTRAINT lane_nonces_closed_by_known CHECK (
        (state = 'closed') = (closed_by IS NOT NULL) AND closed_by IN ('payment', 'cancellation', 'foreign', 'expired')
    );
