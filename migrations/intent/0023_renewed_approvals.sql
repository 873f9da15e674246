-- Approvals that expired after the quorum are renewed while the request is approved or queued; the history says so. The
-- previous binary writes no such entry and reads it like any other.
ALTER TABLE transitions
    DROP CONSTRAINT transitions_edge_known,
    ADD CONSTRAINT transitions_edge_known CHECK (
        (coalesce(from_status, ''), to_status) IN (
            ('', 'pending'), ('', 'queued'),
            ('pending', 'pending'), ('pending', 'approved'), ('pending', 'rejected'), ('pending', 'cancelled'),
            ('approved', 'approved'), ('approved', 'queued'),
            ('queued', 'queued'), ('queued', 'completed'), ('queued', 'failed')));
