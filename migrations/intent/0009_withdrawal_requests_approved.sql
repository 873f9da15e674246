-- Statistics over what reached its quorum within a window.
CREATE INDEX withdrawal_requests_approved ON withdrawal_requests (approved_at) INCLUDE (created_at)
    WHERE approved_at IS NOT NULL;
