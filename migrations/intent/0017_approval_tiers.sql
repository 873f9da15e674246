-- How many must approve, from an amount on.
CREATE TABLE approval_tiers (
    chain              text          NOT NULL,
    asset              text          NOT NULL,
    from_amount_raw    numeric(78,0) NOT NULL,
    required_approvals integer       NOT NULL,
    -- Also finds the tier of an amount: the last one that begins at or below it.
    CONSTRAINT approval_tiers_pkey PRIMARY KEY (chain, asset, from_amount_raw),
    -- Tiers go with their policy.
    CONSTRAINT approval_tiers_policy FOREIGN KEY (chain, asset)
        REFERENCES approval_policies (chain, asset) ON DELETE CASCADE,
    CONSTRAINT approval_tiers_amount_positive CHECK (from_amount_raw >= 0),
    CONSTRAINT approval_tiers_required_range CHECK (required_approvals BETWEEN 1 AND 100)
);
