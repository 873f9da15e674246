-- A request that execution refuses to take says why while it is approved, and not only in the relay's log. The previous binary
-- writes none and does not read it.
ALTER TABLE withdrawal_requests
    DROP CONSTRAINT withdrawal_requests_blocked_only_when_queued,
    ADD CONSTRAINT withdrawal_requests_blocked_only_on_the_way
        CHECK (blocked_reason IS NULL OR status IN ('approved', 'queued'));
