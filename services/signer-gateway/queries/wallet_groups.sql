SELECT id, name, purpose, fingerprint, sealed_version, sealed_nonce, sealed_seed, created_at
FROM wallet_groups
WHERE ($1::uuid IS NULL OR id = $1) AND ($2::text IS NULL OR name = $2)
ORDER BY created_at, id
