-- What counts against limits, added up by the hour: a window of a month is then some hundred rows and one hour of requests, and
-- not every request of a month. Triggers keep it, in the transaction of each change and whichever binary makes it, so that it
-- is exact at every moment.

-- Nobody may write between the sums below and the triggers.
LOCK TABLE withdrawal_requests IN SHARE ROW EXCLUSIVE MODE;

CREATE TABLE limit_usage_of_assets (
    chain      text        NOT NULL,
    asset      text        NOT NULL,
    hour       timestamptz NOT NULL,
    -- Some rows for each hour, so that requests of one asset do not wait for each other. Only their sum means anything: what was
    -- added in one may be taken off in another.
    shard      smallint    NOT NULL,
    -- Without an end: sums pass 2^256.
    amount_raw numeric     NOT NULL,
    CONSTRAINT limit_usage_of_assets_pkey PRIMARY KEY (chain, asset, hour, shard)
) WITH (fillfactor = 70);

CREATE TABLE limit_usage_of_users (
    user_id    uuid        NOT NULL,
    chain      text        NOT NULL,
    asset      text        NOT NULL,
    hour       timestamptz NOT NULL,
    amount_raw numeric     NOT NULL,
    CONSTRAINT limit_usage_of_users_pkey PRIMARY KEY (user_id, chain, asset, hour)
) WITH (fillfactor = 70);

INSERT INTO limit_usage_of_assets (chain, asset, hour, shard, amount_raw)
SELECT chain, asset, date_bin('1 hour', created_at, timestamptz 'epoch'), 0, sum(amount_raw)
FROM withdrawal_requests
WHERE status IN ('pending', 'approved', 'queued', 'completed')
GROUP BY 1, 2, 3;

INSERT INTO limit_usage_of_users (user_id, chain, asset, hour, amount_raw)
SELECT user_id, chain, asset, date_bin('1 hour', created_at, timestamptz 'epoch'), sum(amount_raw)
FROM withdrawal_requests
WHERE status IN ('pending', 'approved', 'queued', 'completed')
GROUP BY 1, 2, 3, 4;

-- Rows are written in the order of their keys, assets before customers, so that two writers never wait for each other in a
-- circle; and after their statement, so that whoever waits for another's request holds none of them.
CREATE FUNCTION limit_usage_of_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_usage_of_assets AS known (chain, asset, hour, shard, amount_raw)
    SELECT chain, asset, date_bin('1 hour', created_at, timestamptz 'epoch'), pg_backend_pid() % 4, sum(amount_raw)
    FROM new_rows
    WHERE status IN ('pending', 'approved', 'queued', 'completed')
    GROUP BY 1, 2, 3
    ORDER BY 1, 2, 3
    ON CONFLICT ON CONSTRAINT limit_usage_of_assets_pkey
        DO UPDATE SET amount_raw = known.amount_raw + excluded.amount_raw;

    INSERT INTO limit_usage_of_users AS known (user_id, chain, asset, hour, amount_raw)
    SELECT user_id, chain, asset, date_bin('1 hour', created_at, timestamptz 'epoch'), sum(amount_raw)
    FROM new_rows
    WHERE status IN ('pending', 'approved', 'queued', 'completed')
    GROUP BY 1, 2, 3, 4
    ORDER BY 1, 2, 3, 4
    ON CONFLICT ON CONSTRAINT limit_usage_of_users_pkey
        DO UPDATE SET amount_raw = known.amount_raw + excluded.amount_raw;
    RETURN NULL;
END
$$;

-- What a request says never changes, and one that counted stops counting once: when it ends without payment.
CREATE FUNCTION limit_usage_of_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM new_rows WHERE status IN ('failed', 'rejected', 'cancelled')) THEN
        RETURN NULL;
    END IF;

    INSERT INTO limit_usage_of_assets AS known (chain, asset, hour, shard, amount_raw)
    SELECT ended.chain, ended.asset, date_bin('1 hour', ended.created_at, timestamptz 'epoch'), pg_backend_pid() % 4,
           -sum(ended.amount_raw)
    FROM new_rows AS ended JOIN old_rows AS before ON before.id = ended.id
    WHERE ended.status IN ('failed', 'rejected', 'cancelled')
      AND before.status IN ('pending', 'approved', 'queued', 'completed')
    GROUP BY 1, 2, 3
    ORDER BY 1, 2, 3
    ON CONFLICT ON CONSTRAINT limit_usage_of_assets_pkey
        DO UPDATE SET amount_raw = known.amount_raw + excluded.amount_raw;

    INSERT INTO limit_usage_of_users AS known (user_id, chain, asset, hour, amount_raw)
    SELECT ended.user_id, ended.chain, ended.asset, date_bin('1 hour', ended.created_at, timestamptz 'epoch'),
           -sum(ended.amount_raw)
    FROM new_rows AS ended JOIN old_rows AS before ON before.id = ended.id
    WHERE ended.status IN ('failed', 'rejected', 'cancelled')
      AND before.status IN ('pending', 'approved', 'queued', 'completed')
    GROUP BY 1, 2, 3, 4
    ORDER BY 1, 2, 3, 4
    ON CONFLICT ON CONSTRAINT limit_usage_of_users_pkey
        DO UPDATE SET amount_raw = known.amount_raw + excluded.amount_raw;
    RETURN NULL;
END
$$;

CREATE TRIGGER limit_usage_of_new AFTER INSERT ON withdrawal_requests
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION limit_usage_of_new();
CREATE TRIGGER limit_usage_of_ended AFTER UPDATE ON withdrawal_requests
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION limit_usage_of_ended();
