-- Whom a requester's key acted for. The key's own name stays in `requested_by`; neither may approve. Empty when nobody was
-- named. The previous binary does not name anybody, and cannot read or approve a request that does: it fails closed.
ALTER TABLE withdrawal_requests
    ADD COLUMN on_behalf_of text NOT NULL DEFAULT '',
    ADD CONSTRAINT withdrawal_requests_on_behalf_of_length CHECK (length(on_behalf_of) <= 128),
    -- Lets an approval refer to it, so that the database itself refuses the approval of whoever was named.
    ADD CONSTRAINT withdrawal_requests_id_on_behalf_of UNIQUE (id, on_behalf_of);
