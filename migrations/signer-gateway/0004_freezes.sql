-- The kill switch: while a row stands, nothing is signed for that chain ('*': for any).
CREATE TABLE freezes (
    chain     text        PRIMARY KEY,
    reason    text        NOT NULL,
    frozen_by text        NOT NULL,
    frozen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT freezes_reason_length CHECK (char_length(reason) BETWEEN 1 AND 500)
);
