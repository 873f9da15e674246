-- Lists of one asset on one chain, or of one chain that few use. Where most requests are of that kind, walking through the newest
-- finds a page sooner, and is what happens.
CREATE INDEX withdrawal_requests_by_asset ON withdrawal_requests (chain, asset, created_at DESC, id DESC);
