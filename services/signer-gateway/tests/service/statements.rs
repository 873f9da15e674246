//! The statements of the repositories against the migrated schema, and the plans of those that read large tables.

use sqlx::PgPool;
use testkit::Database;

/// Tables that grow with every payment.
const LARGE: [&str; 7] =
    ["signing_records", "payments", "slots", "fences", "limit_usage", "limit_hours", "audit_log"];

async fn migrated() -> (Database, PgPool) {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    let migrator = <signer_gateway::SignerGateway as service::Service>::migrator().expect("migrations");
    db::migrate::run(&pool, migrator).await.expect("migrated");
    (database, pool)
}

#[tokio::test]
async fn every_statement_fits_the_schema() {
    let (_database, pool) = migrated().await;
    testkit::check_statements(&pool, env!("CARGO_MANIFEST_DIR")).await;
}

#[tokio::test]
async fn neither_a_batch_nor_a_check_of_the_log_reads_a_large_table_whole() {
    let (_database, pool) = migrated().await;
    fill(&pool).await;
    for sql in [
        include_str!("../../queries/ledger_load.sql"),
        include_str!("../../queries/audit_stray_record.sql"),
        "SELECT * FROM audit_log WHERE sequence > $1 ORDER BY sequence LIMIT $2",
    ] {
        let plan = testkit::generic_plan(&pool, sql).await;
        for table in LARGE {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{table} is read whole:\n{plan}");
        }
    }
}

/// Twenty thousand payments, counted by forty counters.
async fn fill(pool: &PgPool) {
    for statement in [
        "INSERT INTO audit_log SELECT n, now(), 'execution', 'sign', 'allowed', 'payment_guard.first', '{}', \
             sha256(n::text::bytea), sha256(n::text::bytea) FROM generate_series(1, 20000) AS n",
        "INSERT INTO signing_records SELECT 'job/' || n, 'withdrawal/' || n, 0, true, '{}', '0x00', '\\x00', \
             sha256(n::text::bytea), n, now() FROM generate_series(1, 20000) AS n",
        "INSERT INTO payments SELECT 'withdrawal/' || n, gen_random_uuid(), 'bsc', '0x00', 'BNB', '0x01', 1, NULL, false, \
             0, n, NULL, NULL, 1, 1, 21000, 'paying', true, 0, now(), now() FROM generate_series(1, 20000) AS n",
        "INSERT INTO slots SELECT 'bsc', '0x00', n, 'withdrawal/' || n, 0 FROM generate_series(1, 20000) AS n",
        "INSERT INTO fences SELECT gen_random_uuid(), 1 FROM generate_series(1, 20000) AS n",
        "INSERT INTO limit_usage SELECT 'bsc', 'counter/' || n % 40, \
             date_trunc('minute', now()) - make_interval(hours => n / 40), 1 FROM generate_series(1, 20000) AS n",
        "ANALYZE",
    ] {
        sqlx::query(statement).execute(pool).await.expect(statement);
    }
}
