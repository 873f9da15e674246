//! The SQL of the repositories: every statement fits the schema, and what runs all the time stays on its index.

use sqlx::PgPool;
use testkit::{Database, check_statements, generic_plan};

async fn migrated() -> (Database, PgPool) {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &confirmation::MIGRATOR).await.unwrap();
    (database, pool)
}

#[tokio::test]
async fn every_statement_fits_the_schema_and_stands_in_a_repository() {
    let (_database, pool) = migrated().await;
    check_statements(&pool, env!("CARGO_MANIFEST_DIR")).await;
}

/// A chain with many ended watches, as after a while in production, among them a few that are open.
const FILL: &str = "
    INSERT INTO chains (name, kind, network_id, nodes, depth, stuck_after_seconds, revision)
    VALUES ('bsc', 'evm', 56, '{http://127.0.0.1:9}', 3, 0, 1);
    INSERT INTO watches (
        job_id, chain, from_address, to_address, amount_raw, nonce, since_block, status, tx_hash, block_number, block_hash,
        waiting_since, check_due_at, trace, created_at, finished_at
    )
    SELECT
        gen_random_uuid(), 'bsc', 'from' || i % 20, 'to', 1, i, 0,
        CASE WHEN is_open THEN 'waiting' ELSE 'settled' END,
        CASE WHEN NOT is_open THEN sha256(i::text::bytea) END, CASE WHEN NOT is_open THEN i END,
        CASE WHEN NOT is_open THEN sha256(i::text::bytea) END,
        now(), now() + i * interval '1 second', '{}', now() - i * interval '1 second',
        CASE WHEN NOT is_open THEN now() END
    FROM (SELECT i, i % 50 = 0 AS is_open FROM generate_series(1, 30000) AS i) AS n;
    INSERT INTO watched_transactions (
        chain, hash, job_id, round, position, is_cancellation, nonce, reference_block, block_number, block_hash, final_at
    )
    SELECT
        'bsc', sha256(job_id::text::bytea), job_id, 1, 0, false, nonce, 0, block_number, block_hash,
        CASE WHEN nonce % 100 <> 1 THEN finished_at END
    FROM watches;
    ANALYZE;";

#[tokio::test]
async fn what_runs_in_every_tick_and_the_lists_stay_on_their_indexes() {
    let (_database, pool) = migrated().await;
    sqlx::raw_sql(FILL).execute(&pool).await.unwrap();
    let mut slow = Vec::new();
    for (sql, index) in [
        (include_str!("../../queries/lookup_due.sql"), "watches_due"),
        (include_str!("../../queries/transactions_undecided.sql"), "watched_transactions_undecided"),
        (include_str!("../../queries/transactions_undo.sql"), "watched_transactions_"),
        (include_str!("../../queries/transactions_include.sql"), "watched_transactions_pkey"),
        (include_str!("../../queries/void_nonces.sql"), "watches_lanes"),
        (include_str!("../../queries/void_windows.sql"), "watches_due"),
        (include_str!("../../queries/void_open.sql"), "watches_lanes"),
        (include_str!("../../queries/watch_gauges.sql"), "watches_open"),
        (include_str!("../../queries/watch_load.sql"), "watches_pkey"),
        (include_str!("../../queries/watch_page.sql"), "watches_newest"),
        (include_str!("../../queries/watch_transactions.sql"), "watched_transactions_position_key"),
    ] {
        let plan = generic_plan(&pool, sql).await;
        if !plan.contains(index) || plan.contains("Seq Scan on watch") {
            slow.push(format!("{index} is not used, or a whole table is read, by\n{sql}\n{plan}"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
