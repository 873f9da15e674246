-- Who this installation is. Its workers carry the id in their environment, so that an orchestrator that takes over finds every
-- process that is its own, and none of another installation on the same machine.
CREATE TABLE fleet (
    -- One row only.
    singleton boolean PRIMARY KEY DEFAULT true CONSTRAINT fleet_one_row CHECK (singleton),
    id        uuid NOT NULL
);
INSERT INTO fleet (id) VALUES (gen_random_uuid());
