-- Keys compare byte by byte, not by the rules of the server's locale. Those come with the operating system's C library and change
-- with its upgrades; an index that was built by older rules then misses rows that are there, and lets doubles in. Here that would
-- be a guard that forgets payments.
--
-- Indexes are built anew, tables are not; signing waits for as long as that takes. No value changes, so the binary of the version
-- before goes on as it did.
ALTER TABLE wallet_groups
    ALTER COLUMN name TYPE text COLLATE "C",
    ALTER COLUMN fingerprint TYPE text COLLATE "C";
ALTER TABLE operation_wallets
    ALTER COLUMN chain TYPE text COLLATE "C",
    ALTER COLUMN address TYPE text COLLATE "C";
ALTER TABLE freezes
    ALTER COLUMN chain TYPE text COLLATE "C";
ALTER TABLE payments
    ALTER COLUMN payment TYPE text COLLATE "C";
ALTER TABLE slots
    ALTER COLUMN chain TYPE text COLLATE "C",
    ALTER COLUMN wallet TYPE text COLLATE "C",
    ALTER COLUMN payment TYPE text COLLATE "C";
ALTER TABLE signing_records
    ALTER COLUMN idempotency_key TYPE text COLLATE "C",
    ALTER COLUMN payment TYPE text COLLATE "C";
ALTER TABLE limit_usage
    ALTER COLUMN chain TYPE text COLLATE "C",
    ALTER COLUMN counter TYPE text COLLATE "C";
