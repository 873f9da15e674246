-- The chains confirmation follows, as execution's catalogue describes them.

CREATE TABLE chains (
    name                text        NOT NULL,
    kind                text        NOT NULL,
    network_id          bigint      NOT NULL,
    -- Addresses of nodes may carry API keys: never logged, never returned.
    nodes               text[]      NOT NULL,
    -- Blocks on top; 0 means the chain's own finality.
    depth               integer     NOT NULL,
    -- 0 means that no watch is ever reported as stuck.
    stuck_after_seconds integer     NOT NULL,
    -- Grows with each change; an older one that arrives late is ignored.
    revision            bigint      NOT NULL,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT chains_pkey PRIMARY KEY (name),
    CONSTRAINT chains_name_fits CHECK (name ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND length(name) <= 32),
    CONSTRAINT chains_kind_known CHECK (kind IN ('evm', 'tron')),
    CONSTRAINT chains_network_id_positive CHECK (network_id > 0),
    CONSTRAINT chains_have_nodes CHECK (cardinality(nodes) > 0),
    CONSTRAINT chains_depth_not_negative CHECK (depth >= 0),
    CONSTRAINT chains_stuck_after_not_negative CHECK (stuck_after_seconds >= 0),
    CONSTRAINT chains_revision_not_negative CHECK (revision >= 0)
);

-- What the loop over one chain knows, and who runs it. One row per chain; its lock orders all writers of that chain.
CREATE TABLE chain_loops (
    chain         text        NOT NULL,
    -- Who runs the loop, for people.
    lease_owner   text,
    -- Grows each time the loop changes hands. Every write of the loop names it.
    lease_token   bigint      NOT NULL DEFAULT 0,
    lease_until   timestamptz,
    -- The newest block that was agreed to be final.
    final_number  bigint,
    final_hash    bytea,
    halted_at     timestamptz,
    halted_reason text,
    CONSTRAINT chain_loops_pkey PRIMARY KEY (chain),
    CONSTRAINT chain_loops_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    CONSTRAINT chain_loops_lease_whole CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT chain_loops_final_whole CHECK ((final_number IS NULL) = (final_hash IS NULL)),
    CONSTRAINT chain_loops_final_hash_size CHECK (octet_length(final_hash) = 32),
    CONSTRAINT chain_loops_halt_says_why CHECK ((halted_at IS NULL) = (halted_reason IS NULL))
);
