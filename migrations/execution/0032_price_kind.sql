-- Which kind of price an attempt has: gas (limit and price per unit) or a fee limit, which until now was recognised by the
-- attempt's window and stored as that much gas at a price of one. Those columns are still written, because the previous release
-- reads only them; it writes no kind, and a row without one is read as it was before.
ALTER TABLE attempts
    ADD COLUMN price_kind text,
    ADD CONSTRAINT attempts_price_kind_known CHECK (price_kind IN ('gas', 'fee_limit'));

UPDATE attempts SET price_kind = CASE WHEN expiration_ms IS NULL THEN 'gas' ELSE 'fee_limit' END
WHERE gas_limit IS NOT NULL;
