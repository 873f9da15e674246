-- Approvals that were refused. One row for each approver, request and reason, counted, so that a caller who repeats a
-- refused call a million times leaves one row and not a million.
CREATE TABLE approval_refusals (
    request_id uuid        NOT NULL,
    approver   text        NOT NULL,
    reason     text        NOT NULL,
    times      bigint      NOT NULL,
    first_at   timestamptz NOT NULL,
    last_at    timestamptz NOT NULL,
    CONSTRAINT approval_refusals_pkey PRIMARY KEY (request_id, approver, reason),
    CONSTRAINT approval_refusals_request FOREIGN KEY (request_id) REFERENCES withdrawal_requests (id),
    CONSTRAINT approval_refusals_times_positive CHECK (times >= 1)
);
