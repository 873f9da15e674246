-- Which set of approvals a job has: approvers sign again when theirs expired before anything was signed, and a late repetition
-- of an older set must not replace a newer one.
ALTER TABLE jobs ADD COLUMN approvals_revision bigint NOT NULL DEFAULT 0;
