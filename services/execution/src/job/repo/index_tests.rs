//! Every statement fits the migrated database, and the frequent ones stay on their indexes.

use sqlx::PgPool;

use super::*;

/// A history of finished jobs, and a few that are under way.
const HISTORY: &str = "
    INSERT INTO chains VALUES ('bsc', 'evm', 56, '{http://node}', 'depth', 2, true, 1000, 1000, 30, true, 'BNB', 1);
    INSERT INTO assets VALUES (gen_random_uuid(), 'bsc', 'BNB', true, NULL, 18, true, 0);
    INSERT INTO operation_wallets (id, chain, address, role, status, wallet_group_id, derivation_index, label)
    VALUES (gen_random_uuid(), 'bsc', 'w', 'hot_wallet', 'active', gen_random_uuid(), 0, '');
    INSERT INTO lanes (chain, address, next_nonce) VALUES ('bsc', 'w', 20000);
    INSERT INTO jobs (id, queue, withdrawal_id, chain, asset_id, wallet_id, to_address, amount_raw, rank, status, max_tries,
        tx_hash, requested_by, approvals, finished_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'withdrawal', gen_random_uuid(), 'bsc', (SELECT id FROM assets),
        (SELECT id FROM operation_wallets), 't', 1, 1, CASE WHEN n < 19900 THEN 'confirmed' ELSE 'confirming' END, 5,
        decode(lpad(to_hex(n), 64, '0'), 'hex'), 'alice', '[]', CASE WHEN n < 19900 THEN now() END
    FROM generate_series(1, 20000) AS n;
    INSERT INTO attempts (id, job_id, number, kind, status, chain, address, nonce, raw_transaction, tx_hash)
    SELECT gen_random_uuid(), id, 1, 'pay', CASE WHEN finished_at IS NULL THEN 'broadcast' ELSE 'settled' END, 'bsc', 'w',
        row_number() OVER (ORDER BY id), '\\x01', tx_hash
    FROM jobs;
    INSERT INTO lane_nonces (chain, address, nonce, state, job_id, closed_by, closed_at)
    SELECT t.chain, t.address, t.nonce, CASE WHEN j.finished_at IS NULL THEN 'open' ELSE 'closed' END, j.id,
        CASE WHEN j.finished_at IS NOT NULL THEN 'payment' END, j.finished_at
    FROM attempts AS t JOIN jobs AS j ON j.id = t.job_id;
    ANALYZE;";

async fn migrated() -> (testkit::Database, PgPool) {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &crate::MIGRATOR).await.unwrap();
    (database, pool)
}

#[tokio::test]
async fn every_statement_fits_the_migrated_database_and_stands_in_a_repository() {
    let (_database, pool) = migrated().await;
    testkit::check_statements(&pool, env!("CARGO_MANIFEST_DIR")).await;
}

#[tokio::test]
async fn claims_resends_and_lists_never_read_the_history() {
    let (_database, pool) = migrated().await;
    sqlx::raw_sql(HISTORY).execute(&pool).await.unwrap();
    let resends = include_str!("../../../queries/due_resends.sql");
    for (sql, index) in [
        (BY_IDS.as_str(), "jobs_pkey"),
        (BY_WITHDRAWALS.as_str(), "jobs_withdrawal_key"),
        (LOCKED.as_str(), "jobs_pkey"),
        (OPEN_PAGE.as_str(), "jobs_unfinished"),
        (PAGE.as_str(), "jobs_pkey"),
        (resends, "lane_nonces_"),
        (include_str!("../../../queries/select_attempts.sql"), "attempts_number_key"),
        (include_str!("../../../queries/busy_lanes.sql"), "lane_nonces_"),
    ] {
        let plan = testkit::generic_plan(&pool, sql).await;
        assert!(plan.contains(index), "{index} is not used by {sql}:\n{plan}");
        // The other indexes of this table hold only what is not closed.
        assert!(!plan.contains("lane_nonces_pkey"), "closed nonces are read by {sql}:\n{plan}");
        for table in ["jobs", "attempts", "lane_nonces"] {
            assert!(
                !plan.contains(&format!("Seq Scan on {table}")),
                "{table} is read whole by {sql}:\n{plan}"
            );
        }
    }
}
