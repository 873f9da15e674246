-- What customers asked for. The rules of the state machine stand here a second time: a bug in the service must not be able
-- to store a state that cannot be.
CREATE TABLE withdrawal_requests (
    id                 uuid          NOT NULL,
    -- `request`: asked for here, needs approvals. `import`: another system approved and broadcast it.
    origin             text          NOT NULL,
    idempotency_key    text          NOT NULL,
    -- SHA-256 over every field the caller chose; see `withdrawal/request.rs`.
    payload_hash       bytea         NOT NULL,
    user_id            uuid          NOT NULL,
    chain              text          NOT NULL,
    asset              text          NOT NULL,
    -- In the asset's smallest unit. 78 digits hold 2^256 - 1.
    amount_raw         numeric(78,0) NOT NULL,
    -- The asset's decimals when the request was made: a later change of the catalogue must not change what was asked for.
    decimals           smallint      NOT NULL,
    destination        text          NOT NULL,
    memo               text          NOT NULL,
    priority_rank      smallint      NOT NULL,
    labels             jsonb         NOT NULL,
    requested_by       text          NOT NULL,
    required_approvals integer       NOT NULL,

    status             text          NOT NULL,
    blocked_reason     text,
    -- When the sender last said blocked or unblocked: an older word that arrives late is ignored.
    blocked_changed_at timestamptz,
    failure_reason     text,
    final_tx_hash      text,
    final_block        bigint,
    -- Sequence of the newest transition. Every change adds one, so it also is what compare-and-set compares.
    last_sequence      bigint        NOT NULL,

    created_at         timestamptz   NOT NULL,
    updated_at         timestamptz   NOT NULL,
    approved_at        timestamptz,
    queued_at          timestamptz,
    finished_at        timestamptz,

    CONSTRAINT withdrawal_requests_pkey PRIMARY KEY (id),
    -- One key, one row, for ever: a key names one payload. Rows are never deleted and payloads never change (migration 2).
    CONSTRAINT withdrawal_requests_idempotency_key_once UNIQUE (idempotency_key),
    -- Lets an approval refer to the requester, so that the database itself refuses one's own approval.
    CONSTRAINT withdrawal_requests_id_requested_by UNIQUE (id, requested_by),

    CONSTRAINT withdrawal_requests_origin_known CHECK (origin IN ('request', 'import')),
    CONSTRAINT withdrawal_requests_key_length CHECK (length(idempotency_key) BETWEEN 1 AND 128),
    CONSTRAINT withdrawal_requests_hash_length CHECK (octet_length(payload_hash) = 32),
    CONSTRAINT withdrawal_requests_names_length
        CHECK (length(chain) BETWEEN 1 AND 32 AND length(asset) BETWEEN 1 AND 32),
    CONSTRAINT withdrawal_requests_amount_range
        CHECK (amount_raw > 0 AND amount_raw
            <= 115792089237316195423570985008687907853269984665640564039457584007913129639935),
    CONSTRAINT withdrawal_requests_decimals_range CHECK (decimals BETWEEN 0 AND 77),
    CONSTRAINT withdrawal_requests_destination_present CHECK (length(destination) BETWEEN 1 AND 64),
    CONSTRAINT withdrawal_requests_memo_length CHECK (length(memo) <= 500),
    CONSTRAINT withdrawal_requests_priority_known CHECK (priority_rank BETWEEN 0 AND 3),
    CONSTRAINT withdrawal_requests_requester_present CHECK (requested_by <> ''),
    -- What was approved elsewhere needs no approval here; everything else needs at least one.
    CONSTRAINT withdrawal_requests_approvals_required
        CHECK ((origin = 'import' AND required_approvals = 0) OR (origin = 'request' AND required_approvals >= 1)),

    CONSTRAINT withdrawal_requests_status_known
        CHECK (status IN ('pending', 'approved', 'queued', 'completed', 'failed', 'rejected', 'cancelled')),
    -- An imported payment is on its way already: nobody can approve, reject or cancel it.
    CONSTRAINT withdrawal_requests_import_is_under_way
        CHECK (origin = 'request' OR status IN ('queued', 'completed', 'failed')),
    CONSTRAINT withdrawal_requests_blocked_only_when_queued CHECK (blocked_reason IS NULL OR status = 'queued'),
    CONSTRAINT withdrawal_requests_reason_when_unpaid
        CHECK ((failure_reason IS NOT NULL) = (status IN ('failed', 'rejected', 'cancelled'))),
    CONSTRAINT withdrawal_requests_hash_when_completed
        CHECK ((final_tx_hash IS NOT NULL) = (status = 'completed')),
    CONSTRAINT withdrawal_requests_block_when_completed
        CHECK ((final_block IS NOT NULL) = (status = 'completed') AND (final_block IS NULL OR final_block >= 0)),
    CONSTRAINT withdrawal_requests_approved_at_once_approved
        CHECK ((approved_at IS NOT NULL)
            = (origin = 'request' AND status IN ('approved', 'queued', 'completed', 'failed'))),
    CONSTRAINT withdrawal_requests_queued_at_once_queued
        CHECK ((queued_at IS NOT NULL) = (status IN ('queued', 'completed', 'failed'))),
    CONSTRAINT withdrawal_requests_finished_at_when_terminal
        CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'rejected', 'cancelled'))),
    CONSTRAINT withdrawal_requests_sequence_positive CHECK (last_sequence >= 1)
);
