-- Statistics over what ended within a window.
CREATE INDEX withdrawal_requests_finished ON withdrawal_requests (finished_at) INCLUDE (status, approved_at)
    WHERE finished_at IS NOT NULL;
