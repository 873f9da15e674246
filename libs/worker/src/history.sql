-- A worker's own file. Times are Unix milliseconds.
CREATE TABLE IF NOT EXISTS cycles (
    id       INTEGER PRIMARY KEY,
    epoch    INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    took_ms  INTEGER NOT NULL,
    report   TEXT,
    error    TEXT
);
-- For pruning.
CREATE INDEX IF NOT EXISTS cycles_began ON cycles (began_ms);

CREATE TABLE IF NOT EXISTS records (
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (kind, name, at_ms)
) WITHOUT ROWID;
-- For pruning.
CREATE INDEX IF NOT EXISTS records_at ON records (at_ms);
