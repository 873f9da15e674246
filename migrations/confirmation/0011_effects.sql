-- What must be seen on chain, where the columns of the watch do not say it: payment::Effect as JSON.

-- Null for a transfer, which from_address, to_address, amount_raw and contract_address describe.
ALTER TABLE watches ADD COLUMN effect jsonb;
-- Null for a cancellation and for a transaction that must show the effect of its watch. The previous binary knows no others.
ALTER TABLE watched_transactions ADD COLUMN effect jsonb;
