-- Who may approve withdrawals of an asset.
CREATE TABLE approval_policies (
    chain      text        NOT NULL,
    asset      text        NOT NULL,
    -- Empty: every caller with the approver role.
    approvers  text[]      NOT NULL,
    -- Amounts are shown in the asset's unit, also when the catalogue has changed since.
    decimals   smallint    NOT NULL,
    updated_by text        NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT approval_policies_pkey PRIMARY KEY (chain, asset),
    CONSTRAINT approval_policies_decimals_range CHECK (decimals BETWEEN 0 AND 77)
);
