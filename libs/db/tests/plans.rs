//! The statements of the queue and the outbox go by their indexes, and a plan made while a table was empty does not last.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use common::*;
use db::outbox::OUTBOX_SCHEMA;
use db::queue::QUEUE_SCHEMA;
use testkit::{PreparedStatement, assert_uses_index};

/// Each statement with the indexes that it must use. Those that read or count a whole table on purpose are left out.
const STATEMENTS: &[(&str, &[&str])] = &[
    (include_str!("../queries/queue_claim.sql"), &["job_ready_claim", "job_lease_pkey"]),
    (include_str!("../queries/queue_reclaim.sql"), &["job_lease_expiry"]),
    (
        include_str!("../queries/queue_next_due.sql"),
        &["job_ready_claim", "job_lease_pkey", "job_lease_expiry"],
    ),
    (include_str!("../queries/lease_guard.sql"), &["job_lease_pkey"]),
    (include_str!("../queries/lease_extend.sql"), &["job_lease_pkey"]),
    (include_str!("../queries/lease_complete.sql"), &["job_lease_pkey"]),
    (include_str!("../queries/outbox_claim.sql"), &["outbox_lane_due", "outbox_pkey"]),
    (include_str!("../queries/outbox_next_due.sql"), &["outbox_lane_due"]),
    (include_str!("../queries/outbox_hold.sql"), &["outbox_lane_pkey"]),
    (include_str!("../queries/outbox_settle.sql"), &["outbox_lane_pkey", "outbox_message_id_key"]),
    (include_str!("../queries/outbox_parked.sql"), &["outbox_lane_parked", "outbox_pkey"]),
    (include_str!("../queries/outbox_requeue.sql"), &["outbox_lane_pkey", "outbox_message_id_key"]),
];

async fn tables() -> Base {
    let base = base(QUEUE_SCHEMA).await;
    sqlx::raw_sql(OUTBOX_SCHEMA).execute(&base.pool).await.unwrap();
    base
}

async fn fill(base: &Base) {
    let rows = "
        INSERT INTO job_ready
        SELECT gen_random_uuid(), now() - (i % 1000) * interval '1 s', 0, 0, i % 4, 'queue' || i % 3
        FROM generate_series(1, 30000) AS i;
        INSERT INTO job_lease
        SELECT gen_random_uuid(), i, now() + (i % 100 - 2) * interval '1 s', now(), now(), 0, 0, i % 4, 'queue' || i % 3, 'w'
        FROM generate_series(1, 10000) AS i;
        INSERT INTO outbox_lane (aggregate, last_id, due_at, receiver, parked_at, last_error)
        SELECT 'job/' || gen_random_uuid(), i, now() + (i % 100 - 50) * interval '1 s',
               CASE WHEN i % 2 = 0 THEN 'intent' ELSE 'confirmation' END, CASE WHEN i % 500 = 0 THEN now() END, 'refused'
        FROM generate_series(1, 15000) AS i;
        INSERT INTO outbox
        SELECT aggregate, last_id, gen_random_uuid(), receiver || '.Put', decode(repeat('ab', 200), 'hex'), '{}', now()
        FROM outbox_lane";
    sqlx::raw_sql(rows).execute(&base.pool).await.unwrap();
}

async fn assert_indexes(base: &Base) {
    for (sql, indexes) in STATEMENTS {
        for index in *indexes {
            assert_uses_index(&base.pool, sql, index).await;
        }
    }
}

#[tokio::test]
async fn statements_over_full_tables_use_their_indexes() {
    let base = tables().await;
    fill(&base).await;
    sqlx::raw_sql("ANALYZE").execute(&base.pool).await.unwrap();
    assert_indexes(&base).await;
}

#[tokio::test]
async fn statements_over_full_tables_that_were_never_analyzed_use_their_indexes() {
    let base = tables().await;
    for table in ["job_ready", "job_lease", "outbox_lane", "outbox"] {
        let off = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        testkit::execute(base.database.url(), &[&off]).await;
    }
    fill(&base).await;
    assert_indexes(&base).await;
}

#[tokio::test]
async fn plans_made_while_the_tables_were_empty_are_replaced_once_they_have_grown() {
    let base = tables().await;
    // The worst case: vacuum has told the planner that the tables have no pages at all.
    sqlx::raw_sql("VACUUM ANALYZE").execute(&base.pool).await.unwrap();
    let mut sessions = Vec::new();
    for (sql, indexes) in STATEMENTS {
        let mut session = PreparedStatement::new(&base.pool, sql).await;
        assert!(session.plan().await.contains("Seq Scan"), "an empty table is read as a whole");
        sessions.push((session, indexes));
    }
    fill(&base).await;
    assert_eq!(db::refresh_statistics(&base.pool).await.unwrap(), 4);
    for (mut session, indexes) in sessions {
        let plan = session.plan().await;
        assert!(!plan.contains("Seq Scan"), "{plan}");
        assert!(indexes.iter().all(|index| plan.contains(index)), "{plan}");
    }
    assert_eq!(db::refresh_statistics(&base.pool).await.unwrap(), 0, "nothing has grown since");
}
