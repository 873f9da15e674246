-- A copy of the request's, held true by the foreign key, as with `requested_by`.
ALTER TABLE approvals
    ADD COLUMN on_behalf_of text NOT NULL DEFAULT '',
    ADD CONSTRAINT approvals_on_behalf_of FOREIGN KEY (request_id, on_behalf_of)
        REFERENCES withdrawal_requests (id, on_behalf_of),
    ADD CONSTRAINT approvals_not_by_principal CHECK (approver <> on_behalf_of);
