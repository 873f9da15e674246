//! Every statement fits the tables, and those that many callers use read by index, however long the history is.

use sqlx::PgPool;

use crate::support::LONG_HISTORY;

/// `enable_seqscan` is as in a plain session, so that the plans hold by themselves.
async fn filled() -> (testkit::Database, PgPool) {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &intent::MIGRATOR).await.unwrap();
    sqlx::raw_sql(LONG_HISTORY).execute(&pool).await.unwrap();
    (database, pool)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_fits_the_tables() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &intent::MIGRATOR).await.unwrap();
    testkit::check_statements(&pool, env!("CARGO_MANIFEST_DIR")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_limits_are_found_by_their_indexes() {
    let (_database, pool) = filled().await;
    let remaining = include_str!("../../queries/limit_remaining.sql");
    // Several unique indexes begin with the id; any of them will do.
    let by_id = "Index Cond: (id = ";
    for (statement, index) in [
        (include_str!("../../queries/withdrawal_find.sql"), by_id),
        (include_str!("../../queries/withdrawal_lock.sql"), by_id),
        (include_str!("../../queries/withdrawal_update.sql"), by_id),
        (
            include_str!("../../queries/withdrawal_find_by_keys.sql"),
            "withdrawal_requests_idempotency_key_once",
        ),
        (remaining, "limit_usage_of_assets_pkey"),
        (remaining, "limit_usage_of_users_pkey"),
        (remaining, "withdrawal_requests_usage"),
        (remaining, "withdrawal_requests_user_usage"),
    ] {
        testkit::assert_uses_index(&pool, statement, index).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_use_the_index_of_their_filter() {
    let (_database, pool) = filled().await;
    let user = "'01890a5d-ac96-774b-bcce-b302099a8057'";
    // The parameter that is set, and the index that then serves the list.
    for (parameter, value, index) in [
        (0, "", "withdrawal_requests_newest"),
        (1, "ARRAY['pending']", "withdrawal_requests_open"),
        (1, "ARRAY['cancelled']", "withdrawal_requests_unpaid"),
        (2, user, "withdrawal_requests_by_user"),
        (5, "'0x5'", "withdrawal_requests_by_destination"),
        (6, "now()", "withdrawal_requests_newest"),
    ] {
        // Lists are planned for the filters in use, so the plan is made with their values. From the end, since `$1` begins `$10`.
        let mut list = include_str!("../../queries/withdrawal_list.sql").replace("$10", "51");
        for number in (1..10).rev() {
            let value = if number == parameter { value } else { "NULL" };
            list = list.replace(&format!("${number}"), value);
        }
        testkit::assert_uses_index(&pool, &list, index).await;
    }
}
