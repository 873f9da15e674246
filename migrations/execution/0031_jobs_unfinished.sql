-- Without the status, which changes with every step: an update that touches no index stays on its page and writes to none of
-- them. What is not finished is few enough to be filtered.
DROP INDEX jobs_unfinished;
CREATE INDEX jobs_unfinished ON jobs (chain, id) WHERE finished_at IS NULL;
