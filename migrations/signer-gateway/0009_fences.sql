-- The newest lease epoch each job has signed under. An older one belongs to a worker that lost the job.
CREATE TABLE fences (
    job_id uuid   PRIMARY KEY,
    epoch  bigint NOT NULL,
    CONSTRAINT fences_epoch_range CHECK (epoch >= 0)
);
