-- The inbox of libs/db. A service copies this text into a migration of its own and never edits the copy afterwards.

-- One row for each message taken in. The key is all there is to it: receivers only ask "have I seen this?".
CREATE TABLE inbox (
    message_id  uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT inbox_pkey PRIMARY KEY (message_id)
);
