-- The job queue of libs/db. A service copies this text into a migration of its own and never edits the copy afterwards.
--
-- Two slim tables, because a queue lives on how little it leaves behind: a claim deletes the ready row and inserts a lease,
-- completion deletes the lease. Neither row is updated in place on the way, so the head of the claim index holds no dead
-- versions for the next claim to step over. History belongs to the service's own tables.
--
-- A job is the pair (job_id, queue). It may wait and be leased at the same time: pushed again while somebody works on it,
-- it runs once more when that lease ends.

-- The fencing token. CACHE 1, because a session that keeps numbers back would hand out an old one after a newer one.
CREATE SEQUENCE job_token AS bigint CACHE 1;

CREATE TABLE job_ready (
    job_id uuid        NOT NULL,
    due_at timestamptz NOT NULL,
    tries  integer     NOT NULL DEFAULT 0,
    lapses integer     NOT NULL DEFAULT 0, -- how often a lease ran out, as a crash lets it
    rank   smallint    NOT NULL,
    queue  text        NOT NULL,
    CONSTRAINT job_ready_pkey PRIMARY KEY (job_id, queue),
    CONSTRAINT job_ready_rank_known CHECK (rank BETWEEN 0 AND 3),
    CONSTRAINT job_ready_counts_positive CHECK (tries >= 0 AND lapses >= 0)
) WITH (
    -- A thousand dead rows are worth a vacuum here whatever the size of the table, and it shall not dawdle.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- One range per queue and rank, in the order jobs are handed out; job_id makes the order total, so that a claim can go on
-- exactly where the last one ended.
CREATE INDEX job_ready_claim ON job_ready (queue, rank, due_at, job_id);

CREATE TABLE job_lease (
    job_id      uuid        NOT NULL,
    token       bigint      NOT NULL,
    lease_until timestamptz NOT NULL,
    claimed_at  timestamptz NOT NULL,
    due_at      timestamptz NOT NULL, -- since when it had waited
    tries       integer     NOT NULL,
    lapses      integer     NOT NULL,
    rank        smallint    NOT NULL,
    queue       text        NOT NULL,
    owner       text        NOT NULL,
    CONSTRAINT job_lease_pkey PRIMARY KEY (job_id, queue)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- Finds the leases that ran out without reading those that did not.
CREATE INDEX job_lease_expiry ON job_lease (queue, lease_until);
