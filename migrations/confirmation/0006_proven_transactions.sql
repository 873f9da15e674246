-- Whether nonce, expiration and reference of a transaction were read off its signed bytes. Only such a one is ever attested void.
ALTER TABLE watched_transactions ADD COLUMN proven boolean NOT NULL DEFAULT false;
