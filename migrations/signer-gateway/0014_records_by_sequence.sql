-- The audit is checked in parts, and with each part the records that name its entries. New ones go to the end of this index, so
-- a signature pays next to nothing for it. (A BRIN index would be smaller, and is read whole until the table is vacuumed.)
CREATE INDEX signing_records_by_sequence ON signing_records (audit_sequence);
