-- Lists of what went to one address, newest first. Writers wait while it is built, as with each index below.
CREATE INDEX withdrawal_requests_by_destination ON withdrawal_requests (destination, created_at DESC, id DESC);
