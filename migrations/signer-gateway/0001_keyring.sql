-- How the unseal key becomes the key-encryption key. One row at most: one unseal key opens the whole gateway.
CREATE TABLE keyring (
    only_row         boolean     PRIMARY KEY DEFAULT true,
    memory_kib       integer     NOT NULL,
    iterations       integer     NOT NULL,
    parallelism      integer     NOT NULL,
    salt             bytea       NOT NULL,
    verifier_version smallint    NOT NULL,
    verifier_nonce   bytea       NOT NULL,
    verifier         bytea       NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT keyring_single CHECK (only_row),
    CONSTRAINT keyring_memory_at_least_8_mib CHECK (memory_kib >= 8192),
    CONSTRAINT keyring_iterations_positive CHECK (iterations >= 1),
    CONSTRAINT keyring_parallelism_positive CHECK (parallelism >= 1),
    CONSTRAINT keyring_salt_length CHECK (octet_length(salt) >= 16)
);
