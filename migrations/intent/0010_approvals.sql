-- Signed consents, one for each approver and request. The signature covers the payment, the approver's name and the expiry.
CREATE TABLE approvals (
    request_id   uuid        NOT NULL,
    approver     text        NOT NULL,
    -- A copy of the request's, held true by the foreign key, so that the rule below can be a constraint.
    requested_by text        NOT NULL,
    signature    bytea       NOT NULL,
    expires_at   timestamptz NOT NULL,
    approved_at  timestamptz NOT NULL,
    CONSTRAINT approvals_once_per_approver PRIMARY KEY (request_id, approver),
    CONSTRAINT approvals_request FOREIGN KEY (request_id, requested_by)
        REFERENCES withdrawal_requests (id, requested_by),
    CONSTRAINT approvals_not_by_requester CHECK (approver <> requested_by),
    CONSTRAINT approvals_approver_present CHECK (approver <> ''),
    CONSTRAINT approvals_signature_length CHECK (octet_length(signature) = 64),
    CONSTRAINT approvals_expiry_after_approval CHECK (expires_at > approved_at)
);
