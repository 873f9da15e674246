-- $1 queue, $2 ranks (most urgent first), $3 and $4 where to start in each, $5 how many, $6 owner, $7 lease in milliseconds
--
-- Arguments are wrapped in SELECT to keep them from the planner. If it saw them, a plan for just these would look cheaper
-- than one for all, and it would plan again for every claim, which takes longer than the claim.
WITH taken AS (
    DELETE FROM job_ready
    -- By physical address: the rows are locked below, in this very statement, and cannot move.
    WHERE ctid = ANY (ARRAY(
        SELECT head.place
        FROM unnest(
            (SELECT $2::smallint[]), (SELECT $3::timestamptz[]), (SELECT $4::uuid[])
        ) AS start (rank, due_at, job_id)
        -- One range of the index for each rank, read lazily: a lower rank is not looked at while the higher ones fill the
        -- batch, and jobs that are not due yet are never read.
        CROSS JOIN LATERAL (
            SELECT ready.ctid AS place
            FROM job_ready AS ready
            WHERE ready.queue = (SELECT $1::text)
              AND ready.rank = start.rank
              AND ready.due_at <= statement_timestamp()
              AND (ready.due_at, ready.job_id) >= (start.due_at, start.job_id)
              -- Pushed again while leased: waits until that lease ends. This also makes the insert below free of
              -- conflicts: a lease comes into being only by deleting the ready row, which is locked here.
              -- OFFSET 0 and IS NOT DISTINCT FROM leave the planner one way, a look into the primary key for each
              -- row: made while the table was empty, any other plan would read all leases again and again.
              AND NOT EXISTS (
                  SELECT FROM job_lease AS lease
                  WHERE lease.job_id = ready.job_id AND lease.queue IS NOT DISTINCT FROM ready.queue
                  OFFSET 0
              )
            ORDER BY ready.due_at, ready.job_id
            LIMIT (SELECT $5::bigint)
            FOR UPDATE OF ready SKIP LOCKED
        ) AS head
        LIMIT (SELECT $5::bigint)
    ))
    RETURNING job_id, due_at, tries, lapses, rank
)
INSERT INTO job_lease (job_id, token, lease_until, claimed_at, due_at, tries, lapses, rank, queue, owner)
SELECT
    job_id, nextval('job_token'), statement_timestamp() + $7 * interval '1 ms', statement_timestamp(),
    due_at, tries, lapses, rank, $1, $6
FROM taken
RETURNING job_id, token, lease_until, claimed_at, due_at, tries, lapses, rank
