-- Whom the requester acted for; the signer refuses approvals by either. Empty when nobody was named.
ALTER TABLE jobs ADD COLUMN on_behalf_of text NOT NULL DEFAULT '';
