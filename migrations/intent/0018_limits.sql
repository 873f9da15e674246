-- Ceilings over rolling windows.
CREATE TABLE limits (
    id             uuid          NOT NULL,
    -- `user`: each customer alone. `asset`: all customers together.
    scope          text          NOT NULL,
    chain          text          NOT NULL,
    asset          text          NOT NULL,
    window_seconds bigint        NOT NULL,
    max_amount_raw numeric(78,0) NOT NULL,
    decimals       smallint      NOT NULL,
    updated_by     text          NOT NULL,
    updated_at     timestamptz   NOT NULL,
    CONSTRAINT limits_pkey PRIMARY KEY (id),
    -- What identifies a limit to people. Its first columns also find the limits of an asset.
    CONSTRAINT limits_one_per_window UNIQUE (chain, asset, scope, window_seconds),
    CONSTRAINT limits_scope_known CHECK (scope IN ('user', 'asset')),
    -- A year is the longest window anybody can mean.
    CONSTRAINT limits_window_range CHECK (window_seconds BETWEEN 1 AND 31622400),
    CONSTRAINT limits_amount_positive CHECK (max_amount_raw >= 0),
    CONSTRAINT limits_decimals_range CHECK (decimals BETWEEN 0 AND 77)
);
