//! The log tells of everything, and no edit goes unseen.

use signer_gateway::audit::{Head, verify};
use signer_gateway::rpc::entry_from_wire;
use sqlx::{AssertSqlSafe, Executor};

use crate::support::*;

async fn busy() -> Gateway {
    let gateway = Gateway::start().await;
    for nonce in 0..4 {
        let withdrawal =
            Withdrawal { amount: 1, ..Withdrawal::new(&gateway, nonce) }.approved_by(&["alice", "bob"]);
        gateway.sign(&withdrawal.request()).await.expect("signed");
    }
    let refused = Withdrawal::new(&gateway, 0);
    gateway.sign(&refused.request()).await.expect_err("nonce spent");
    gateway
}

/// Edits as the owner of the database, who can switch triggers off.
async fn tamper(gateway: &Gateway, sql: &str) {
    let pool = gateway.database.pool().await;
    let sql = format!(
        "ALTER TABLE audit_log DISABLE TRIGGER USER; ALTER TABLE signing_records DISABLE TRIGGER USER; {sql};
         ALTER TABLE audit_log ENABLE TRIGGER USER; ALTER TABLE signing_records ENABLE TRIGGER USER"
    );
    pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect("tampered");
}

#[tokio::test]
async fn every_decision_is_an_entry_and_the_chain_holds_online_and_offline() {
    let gateway = busy().await;
    let entries = gateway.audit().await;
    let actions: Vec<(&str, &str)> =
        entries.iter().map(|entry| (entry.action.as_str(), entry.decision.as_str())).collect();
    assert_eq!(
        actions,
        [
            ("unseal", "allowed"),
            ("import_group", "allowed"),
            ("create_group", "allowed"),
            ("sign", "allowed"),
            ("sign", "allowed"),
            ("sign", "allowed"),
            ("sign", "allowed"),
            ("sign", "refused"),
        ]
    );
    assert_eq!(entries[3].caller, "execution");
    assert!(!entries.iter().any(|entry| entry.detail.contains("junk")), "no phrase in the log");
    let report = gateway.verify(None).await;
    assert!(report.intact && report.entries == 8, "{report:?}");
    let exported: Vec<_> = entries.into_iter().map(|entry| entry_from_wire(entry).expect("entry")).collect();
    let head = verify(&exported, None).expect("holds offline");
    assert_eq!(head, Head { sequence: 8, hash: exported[7].hash });
    assert!(gateway.verify(Some((8, head.hash.to_string()))).await.intact);
}

#[tokio::test]
async fn plain_statements_cannot_rewrite_history() {
    let gateway = busy().await;
    let pool = gateway.database.pool().await;
    for sql in [
        "UPDATE audit_log SET reason = 'x'",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "UPDATE signing_records SET pays = false",
        "DELETE FROM signing_records",
        "DELETE FROM payments",
        "UPDATE slots SET nonce = 77",
        "DELETE FROM slots",
    ] {
        let error = pool.execute(sql).await.expect_err(sql).to_string();
        assert!(error.contains("append-only"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn edits_removals_and_swaps_are_found_where_they_were_made() {
    let swap = "UPDATE audit_log SET sequence = -sequence WHERE false;
         ALTER TABLE audit_log DROP CONSTRAINT audit_log_sequence_positive;
         UPDATE audit_log SET sequence = -4 WHERE sequence = 4;
         UPDATE audit_log SET sequence = 4 WHERE sequence = 5;
         UPDATE audit_log SET sequence = 5 WHERE sequence = -4";
    for (sql, first_bad) in [
        ("UPDATE audit_log SET decision = 'allowed' WHERE sequence = 8", 8),
        ("UPDATE audit_log SET detail = replace(detail, 'BNB', 'ETH') WHERE sequence = 5", 5),
        ("UPDATE audit_log SET at = at + interval '1 microsecond' WHERE sequence = 2", 2),
        ("DELETE FROM audit_log WHERE sequence = 6", 6),
        ("DELETE FROM audit_log WHERE sequence = 8", 8),
        (swap, 4),
    ] {
        let gateway = busy().await;
        tamper(&gateway, sql).await;
        let report = gateway.verify(None).await;
        assert!(!report.intact, "{sql}");
        assert_eq!(report.first_bad_sequence, first_bad, "{sql}: {}", report.problem);
    }
}

#[tokio::test]
async fn a_cut_tail_with_a_mended_head_is_found_by_a_noted_head() {
    let gateway = busy().await;
    let noted = gateway.audit().await.last().map(|entry| (entry.sequence, entry.hash.clone()));
    tamper(
        &gateway,
        "DELETE FROM audit_log WHERE sequence = 8;
         UPDATE audit_head SET sequence = 7, hash = (SELECT hash FROM audit_log WHERE sequence = 7)",
    )
    .await;
    assert!(gateway.verify(None).await.intact, "in itself the shorter chain holds");
    assert!(!gateway.verify(noted).await.intact);
}

#[tokio::test]
async fn a_signature_the_log_does_not_tell_of_is_found() {
    let gateway = busy().await;
    tamper(
        &gateway,
        "UPDATE signing_records SET raw_transaction = raw_transaction || '\\x00' WHERE audit_sequence = 5",
    )
    .await;
    let report = gateway.verify(None).await;
    assert!(!report.intact);
    assert_eq!(report.first_bad_sequence, 5, "{}", report.problem);
}
