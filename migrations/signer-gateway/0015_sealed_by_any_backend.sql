-- The length of a sealed seed belongs to the backend that sealed it: 80 bytes from the local one, whatever a key management service
-- returns from another. The bounds refuse a seed that was stored unsealed. The previous binary writes 80 bytes as before.
ALTER TABLE wallet_groups
    DROP CONSTRAINT wallet_groups_seed_length,
    ADD CONSTRAINT wallet_groups_seed_length CHECK (octet_length(sealed_seed) BETWEEN 80 AND 4096);
