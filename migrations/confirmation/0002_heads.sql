-- Recent canonical blocks of each chain, and what each node said last.

CREATE TABLE heads (
    chain        text   NOT NULL,
    number       bigint NOT NULL,
    hash         bytea  NOT NULL,
    parent       bytea  NOT NULL,
    -- The block's own time, milliseconds since 1970.
    timestamp_ms bigint NOT NULL,
    -- One canonical block for each height; also reads the ring in order.
    CONSTRAINT heads_pkey PRIMARY KEY (chain, number),
    CONSTRAINT heads_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    CONSTRAINT heads_hash_sizes CHECK (octet_length(hash) = 32 AND octet_length(parent) = 32)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);

CREATE TABLE node_heads (
    chain   text        NOT NULL,
    -- The node's address without credentials.
    node    text        NOT NULL,
    number  bigint      NOT NULL,
    hash    bytea,
    -- What is wrong with it; empty if nothing.
    problem text        NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT node_heads_pkey PRIMARY KEY (chain, node),
    CONSTRAINT node_heads_chain_fkey FOREIGN KEY (chain) REFERENCES chains (name),
    CONSTRAINT node_heads_hash_size CHECK (octet_length(hash) = 32)
);
