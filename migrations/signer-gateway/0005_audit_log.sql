-- Every decision, chained by hashes. Locking the single head row gives all replicas one order.
CREATE TABLE audit_log (
    sequence      bigint      PRIMARY KEY,
    at            timestamptz NOT NULL,
    caller        text        NOT NULL,
    action        text        NOT NULL,
    decision      text        NOT NULL,
    reason        text        NOT NULL,
    -- Text and not jsonb: the hash covers these bytes as they were written.
    detail        text        NOT NULL,
    previous_hash bytea       NOT NULL,
    hash          bytea       NOT NULL,
    CONSTRAINT audit_log_sequence_positive CHECK (sequence >= 1),
    CONSTRAINT audit_log_decision_known CHECK (decision IN ('allowed', 'refused')),
    CONSTRAINT audit_log_hash_length CHECK (octet_length(hash) = 32 AND octet_length(previous_hash) = 32)
);

CREATE TABLE audit_head (
    only_row boolean PRIMARY KEY DEFAULT true,
    sequence bigint  NOT NULL,
    hash     bytea   NOT NULL,
    CONSTRAINT audit_head_single CHECK (only_row),
    CONSTRAINT audit_head_hash_length CHECK (octet_length(hash) = 32)
)
-- Rewritten by every commit: room on the page keeps the new version in place, without an index entry.
WITH (fillfactor = 10);

INSERT INTO audit_head (sequence, hash) VALUES (0, decode(repeat('00', 32), 'hex'));
