-- What operators asked for over the API: workers that no file names, and whether a worker should run whatever its file says.
-- Kept here and not in Redis, because a wish must outlive every cache.
CREATE TABLE worker_wishes (
    id         text PRIMARY KEY CONSTRAINT worker_wishes_id CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    -- The whole worker, when it was added over the API; absent when a file names it.
    spec       jsonb,
    -- Whether it should run; absent when its specification decides.
    wanted     boolean,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT worker_wishes_say_something CHECK (spec IS NOT NULL OR wanted IS NOT NULL)
);
