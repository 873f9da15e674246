-- The full history of each request.
CREATE TABLE transitions (
    request_id  uuid        NOT NULL,
    -- From 1 without gaps; a watch resumes after the last one it saw.
    sequence    bigint      NOT NULL,
    from_status text,
    to_status   text        NOT NULL,
    actor       text        NOT NULL,
    detail      text        NOT NULL,
    at          timestamptz NOT NULL,
    -- Two writers that both believe to be next cannot both be.
    CONSTRAINT transitions_pkey PRIMARY KEY (request_id, sequence),
    CONSTRAINT transitions_request FOREIGN KEY (request_id) REFERENCES withdrawal_requests (id),
    CONSTRAINT transitions_sequence_positive CHECK (sequence >= 1),
    CONSTRAINT transitions_first_from_nothing CHECK ((from_status IS NULL) = (sequence = 1)),
    CONSTRAINT transitions_actor_present CHECK (actor <> ''),
    -- The edges of the state machine, and the notes that keep the status: approvals while pending, blocked while queued.
    CONSTRAINT transitions_edge_known CHECK (
        (coalesce(from_status, ''), to_status) IN (
            ('', 'pending'), ('', 'queued'),
            ('pending', 'pending'), ('pending', 'approved'), ('pending', 'rejected'), ('pending', 'cancelled'),
            ('approved', 'queued'),
            ('queued', 'queued'), ('queued', 'completed'), ('queued', 'failed')))
);
