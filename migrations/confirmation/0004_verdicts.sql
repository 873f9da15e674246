-- What was told to execution. Never changed.

CREATE TABLE verdicts (
    id      uuid        NOT NULL,
    job_id  uuid        NOT NULL,
    round   integer     NOT NULL,
    kind    text        NOT NULL,
    -- bursar.execution.v1.Verdict, encoded.
    payload bytea       NOT NULL,
    at      timestamptz NOT NULL,
    CONSTRAINT verdicts_pkey PRIMARY KEY (id),
    CONSTRAINT verdicts_job_fkey FOREIGN KEY (job_id) REFERENCES watches (job_id),
    CONSTRAINT verdicts_kind_known
        CHECK (kind IN ('settled', 'reverted', 'void', 'cancelled', 'stuck', 'reopened', 'contradicted'))
);

-- A round ends once.
CREATE UNIQUE INDEX verdicts_one_end_per_round ON verdicts (job_id, round)
    WHERE kind IN ('settled', 'reverted', 'void', 'cancelled');
-- A job is settled once, whatever the round.
CREATE UNIQUE INDEX verdicts_settled_once ON verdicts (job_id) WHERE kind = 'settled';
-- The verdicts on one job, in order.
CREATE INDEX verdicts_job ON verdicts (job_id, at);
