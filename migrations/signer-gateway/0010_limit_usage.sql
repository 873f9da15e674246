-- What was signed for, by counter and minute: a rolling window is a sum over few rows. Derived from the records.
CREATE TABLE limit_usage (
    chain   text           NOT NULL,
    counter text           NOT NULL,
    minute  timestamptz    NOT NULL,
    amount  numeric(90, 0) NOT NULL,
    CONSTRAINT limit_usage_pkey PRIMARY KEY (chain, counter, minute),
    CONSTRAINT limit_usage_amount_range CHECK (amount >= 0)
);
