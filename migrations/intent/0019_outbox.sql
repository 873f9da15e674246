-- The outbox of libs/db. A service copies this text into a migration of its own and never edits the copy afterwards.
--
-- Messages, and a lane for each aggregate that has any. The lane is the unit of delivery: it is leased, retried and parked,
-- so the cost of finding work depends on the lanes that are due and not on the messages waiting behind a blocked one.

-- Message ids in the order of their aggregate's transactions. CACHE 1 keeps that order across sessions.
CREATE SEQUENCE outbox_id AS bigint CACHE 1;
CREATE SEQUENCE outbox_token AS bigint CACHE 1;

CREATE TABLE outbox_lane (
    aggregate   text        NOT NULL,
    -- The newest message. Taken from the sequence under this row's lock, which therefore orders the aggregate's writers;
    -- and a relay removes the lane only if this has not grown, so that no message is left without one.
    last_id     bigint      NOT NULL,
    -- When the lane may be taken. Taking it moves this to the end of the lease.
    due_at      timestamptz NOT NULL,
    tries       integer     NOT NULL DEFAULT 0, -- failed deliveries of the message at its head
    lease_token bigint,
    parked_at   timestamptz,
    last_error  text,
    CONSTRAINT outbox_lane_pkey PRIMARY KEY (aggregate),
    CONSTRAINT outbox_lane_parked_says_why CHECK (parked_at IS NULL OR last_error IS NOT NULL),
    CONSTRAINT outbox_lane_parked_is_free CHECK (parked_at IS NULL OR lease_token IS NULL)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- What a relay takes next. Parked lanes are not in it.
CREATE INDEX outbox_lane_due ON outbox_lane (due_at) WHERE parked_at IS NULL;
-- The parked ones, for the operator and the gauge.
CREATE INDEX outbox_lane_parked ON outbox_lane (parked_at) WHERE parked_at IS NOT NULL;

CREATE TABLE outbox (
    aggregate  text        NOT NULL,
    id         bigint      NOT NULL,
    message_id uuid        NOT NULL,
    topic      text        NOT NULL,
    payload    bytea       NOT NULL,
    trace      jsonb       NOT NULL,
    created_at timestamptz NOT NULL,
    -- Reads an aggregate's messages in order, and deletes up to the last one acknowledged.
    CONSTRAINT outbox_pkey PRIMARY KEY (aggregate, id),
    -- What receivers recognise a message by.
    CONSTRAINT outbox_message_id_key UNIQUE (message_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
