-- What each counter used within its window. The oldest minute counts whole: never less than what was used.
SELECT item.chain, item.counter, coalesce(sum(usage.amount), 0)::text AS used
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS item (chain, counter, window_s)
LEFT JOIN limit_usage AS usage
    ON usage.chain = item.chain AND usage.counter = item.counter
   AND usage.minute >= date_trunc('minute', $4::timestamptz - make_interval(secs => item.window_s))
GROUP BY item.chain, item.counter
