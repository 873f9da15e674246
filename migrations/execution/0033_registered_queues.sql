-- Which queues there are is the service's registration (`queue::REGISTERED`): it refuses names it does not know when it reads
-- them, and a new queue needs no migration. The previous release writes only names that fit here.
ALTER TABLE jobs
    DROP CONSTRAINT jobs_queue_known,
    ADD CONSTRAINT jobs_queue_is_a_name CHECK (queue ~ '^[a-z][a-z_]{0,31}$');
