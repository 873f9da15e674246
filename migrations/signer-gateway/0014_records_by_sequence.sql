-- The audit is checked in parts, and with each part the records that name its entries. Records are written in the order of
-- their entries, so the summaries of a BRIN index find them, and a signature pays next to nothing for it.
CREATE INDEX signing_records_audit_sequence ON signing_records USING brin (audit_sequence) WITH (pages_per_range = 16, autosummarize = on);
