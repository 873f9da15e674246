-- A nonce that the signer has given to a payment which is not known here (an older copy of this database was restored): never
-- handed out again, never filled. Whatever is not `free` counts as taken for the previous binary, too.
ALTER TABLE lane_nonces
    DROP CONSTRAINT lane_nonces_state_known,
    ADD CONSTRAINT lane_nonces_state_known CHECK (state IN ('open', 'free', 'closed', 'spent'));
