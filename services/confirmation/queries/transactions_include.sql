-- $1 chain, $2 hashes, $3 block numbers, $4 block hashes
UPDATE watched_transactions AS t
SET block_number = seen.block_number,
    block_hash = seen.block_hash,
    final_at = CASE WHEN t.block_hash = seen.block_hash THEN t.final_at END
FROM unnest($2::bytea[], $3::bigint[], $4::bytea[]) AS seen (hash, block_number, block_hash)
WHERE t.chain = $1 AND t.hash = seen.hash
