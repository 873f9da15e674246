-- What another system said about a payment it had broadcast. Kept apart: a request itself knows neither wallets nor hashes
-- that are not final.
CREATE TABLE imports (
    request_id   uuid NOT NULL,
    from_address text NOT NULL,
    tx_hash      text NOT NULL,
    CONSTRAINT imports_pkey PRIMARY KEY (request_id),
    CONSTRAINT imports_request FOREIGN KEY (request_id) REFERENCES withdrawal_requests (id)
);
