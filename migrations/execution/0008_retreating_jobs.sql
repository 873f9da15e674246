-- A job that closes its nonce only to try again at another one, because no node takes what was signed at it. The previous
-- binary reads `cancel_reason` alone, and calls such a job failed once the cancellation is final: nothing was paid then.
ALTER TABLE jobs
    ADD COLUMN retreating boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT jobs_retreat_says_why CHECK (NOT retreating OR cancel_reason IS NOT NULL);
