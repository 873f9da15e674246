-- What each counter used within its window. The oldest minute counts whole: never less than what was used.
SELECT item.chain, item.counter, usage.used::text AS used
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS item (chain, counter, window_s)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(amount), 0) AS used
    FROM limit_usage
    WHERE chain = item.chain AND counter = item.counter
      AND minute >= date_trunc('minute', $4::timestamptz - make_interval(secs => item.window_s))
) AS usage
