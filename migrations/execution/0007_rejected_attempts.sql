-- Whether every node refused these very bytes for good when they were last answered with certainty. Counted for each nonce,
-- so that a job stops replacing what nobody will take. The previous binary does not write it and sends the same bytes again.
ALTER TABLE attempts ADD COLUMN rejected boolean NOT NULL DEFAULT false;
