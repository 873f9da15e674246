-- Which payment used a nonce. Written once per nonce, never changed: a nonce serves one payment ever.
CREATE TABLE slots (
    chain      text    NOT NULL,
    wallet     text    NOT NULL,
    nonce      bigint  NOT NULL,
    payment    text    NOT NULL,
    generation integer NOT NULL,
    CONSTRAINT slots_one_payment_per_nonce PRIMARY KEY (chain, wallet, nonce),
    -- A payment moves to another nonce only as a new generation, which the guard admits only after a proof.
    CONSTRAINT slots_one_nonce_per_generation UNIQUE (payment, generation),
    CONSTRAINT slots_nonce_range CHECK (nonce >= 0),
    CONSTRAINT slots_generation_range CHECK (generation >= 0)
);
