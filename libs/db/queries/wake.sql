-- $1 topic
SELECT CASE
    WHEN pg_try_advisory_lock(1114993267, hashtext($1)) THEN pg_advisory_unlock(1114993267, hashtext($1))::text
    ELSE pg_notify('bursar_wake', $1)::text
END
