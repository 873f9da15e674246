//! The log tells of everything, and no edit goes unseen.

use proto::signer::v1 as pb;
use signer_gateway::audit::{Head, verify};
use signer_gateway::rpc::read_audit_entry;
use sqlx::{AssertSqlSafe, Executor};
use tonic::Code;

use crate::support::*;

async fn busy() -> Gateway {
    let gateway = Gateway::start().await;
    for nonce in 0..4 {
        let withdrawal = Withdrawal::small(&gateway, nonce);
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
    let exported: Vec<_> = entries.into_iter().map(|entry| read_audit_entry(entry).expect("entry")).collect();
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
async fn newest_signatures_cut_off_the_log_are_missed_by_their_records() {
    let gateway = busy().await;
    tamper(
        &gateway,
        "DELETE FROM audit_log WHERE sequence >= 6;
         UPDATE audit_head SET sequence = 5, hash = (SELECT hash FROM audit_log WHERE sequence = 5)",
    )
    .await;
    let report = gateway.verify(None).await;
    assert!(!report.intact, "without a noted head");
    assert_eq!(report.first_bad_sequence, 6, "{}", report.problem);
}

#[tokio::test]
async fn a_check_goes_on_only_from_a_place_that_was_there() {
    let gateway = busy().await;
    let entries = gateway.audit().await;
    let check = |after_sequence, after_hash: &str| pb::VerifyAuditRequest {
        after_sequence,
        after_hash: after_hash.to_owned(),
        ..Default::default()
    };
    let mut operator = gateway.operator.clone();
    let rest = operator.verify_audit(check(5, &entries[4].hash)).await.expect("checked").into_inner();
    assert!(rest.intact && rest.entries == 3, "{rest:?}");
    let other = operator.verify_audit(check(5, &entries[3].hash)).await.expect("checked").into_inner();
    assert!(!other.intact && other.first_bad_sequence == 6, "{other:?}");
    let beyond = operator.verify_audit(check(12, &entries[4].hash)).await.expect("checked").into_inner();
    assert_eq!(beyond.problem, "the log ends at entry 8, but 12 were written");
    for (bad, field) in [
        (check(5, ""), "after_hash"),
        (check(0, &entries[4].hash), "after_sequence"),
        (check(5, "beef"), "after_hash"),
    ] {
        let refused = operator.verify_audit(bad).await.expect_err(field);
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(field), "{refused:?}");
    }
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

#[tokio::test]
async fn a_signature_the_log_tells_of_and_no_record_has_is_found() {
    for sql in [
        "DELETE FROM signing_records WHERE audit_sequence = 5",
        "UPDATE signing_records SET payment = 'withdrawal/another' WHERE audit_sequence = 5",
        "UPDATE signing_records SET tx_hash = sha256(tx_hash) WHERE audit_sequence = 5",
        "UPDATE signing_records SET audit_sequence = 6 WHERE audit_sequence = 5",
    ] {
        let gateway = busy().await;
        tamper(&gateway, sql).await;
        let report = gateway.verify(None).await;
        assert!(!report.intact, "{sql}");
        assert_eq!(report.first_bad_sequence, 5, "{sql}: {}", report.problem);
    }
}

#[tokio::test]
async fn an_entry_tells_who_asked_and_on_whose_word_a_new_nonce_was_given() {
    let gateway = Gateway::start().await;
    let first = Withdrawal { on_behalf_of: "ulla".to_owned(), ..Withdrawal::new(&gateway, 0) };
    let paid = gateway.sign(&first.request()).await.expect("signed");
    let void = attestation(first.job, &[&paid.tx_hash], &confirmation());
    let next = Withdrawal { attempt: 2, nonce: 1, void: Some(void.clone()), ..first.clone() };
    gateway.sign(&next.request()).await.expect("a new nonce");
    let entries = gateway.audit().await;
    let detail = |back: usize| -> serde_json::Value {
        serde_json::from_str(&entries[entries.len() - back].detail).expect("JSON")
    };
    for entry in [detail(1), detail(2)] {
        assert_eq!((&entry["requested_by"], &entry["on_behalf_of"]), (&"rita".into(), &"ulla".into()));
    }
    assert!(detail(2).get("void_attestation").is_none());
    assert_eq!(entries.last().expect("an entry").reason, "payment_guard.new_slot");
    let told = &detail(1)["void_attestation"];
    assert_eq!(told["job_id"], first.job.to_string());
    assert_eq!(told["tx_hashes"], serde_json::json!([paid.tx_hash]));
    assert_eq!(told["attested_at_s"], void.attested_at.expect("a time").seconds);
    assert_eq!(told["signature"], hex::encode(&void.signature));
    assert!(gateway.verify(None).await.intact);
}

#[tokio::test]
async fn requests_of_which_no_transaction_comes_are_entries_too() {
    let gateway = Gateway::start().await;
    let withdrawal = Withdrawal::new(&gateway, 0);
    let mut strange = withdrawal.request();
    strange.wallet_group_id = types::WalletGroupId::new().to_string();
    let mut deep = withdrawal.request();
    deep.derivation_index = 1 << 31;
    let mut empty = withdrawal.request();
    if let Some(pb::sign_transaction_request::Parameters::Evm(it)) = empty.parameters.as_mut() {
        it.gas_limit = 1;
    }
    for (request, code, reason) in [
        (strange, Code::NotFound, "request.unknown_group"),
        (deep, Code::InvalidArgument, "request.derivation_index"),
        (empty, Code::InvalidArgument, "request.build"),
    ] {
        let status = gateway.sign(&request).await.expect_err(reason);
        assert_eq!(status.code(), code, "{status:?}");
        let last = gateway.audit().await.pop().expect("an entry");
        assert_eq!((last.decision.as_str(), last.reason.as_str()), ("refused", reason));
        assert!(last.detail.contains(&request.idempotency_key), "{}", last.detail);
    }
    assert!(gateway.verify(None).await.intact);
}
