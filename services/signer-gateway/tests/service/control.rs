//! Seal, freeze, simulation.

use proto::signer::v1 as pb;
use tonic::Code;

use crate::support::*;

async fn unseal(gateway: &Gateway, key: &str) -> Result<u32, tonic::Status> {
    let request = pb::UnsealRequest { unseal_key: key.to_owned() };
    gateway.operator.clone().unseal(request).await.map(|answer| answer.into_inner().groups)
}

async fn state(gateway: &Gateway) -> pb::GetStatusResponse {
    gateway.operator.clone().get_status(pb::GetStatusRequest {}).await.expect("status").into_inner()
}

#[tokio::test]
async fn a_gateway_that_starts_sealed_signs_nothing_until_the_right_key_is_given() {
    let gateway = Gateway::start().await;
    let withdrawal = Withdrawal::new(&gateway, 0);
    let gateway = gateway.restart(false).await;
    assert!(state(&gateway).await.sealed);
    let status = gateway.sign(&withdrawal.request()).await.expect_err("sealed");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(rpc::error::reason_of(&status).as_deref(), Some("SEALED"));
    let wrong = unseal(&gateway, "a wrong key of some length").await.expect_err("wrong key");
    assert_eq!(wrong.code(), Code::PermissionDenied);
    assert_eq!(
        gateway.audit().await.last().map(|entry| entry.reason.clone()).as_deref(),
        Some("unseal.wrong_key")
    );
    assert_eq!(unseal(&gateway, UNSEAL_KEY).await.expect("unsealed"), 2);
    gateway.sign(&withdrawal.request()).await.expect("signed");

    gateway.operator.clone().seal(pb::SealRequest {}).await.expect("sealed");
    assert!(state(&gateway).await.sealed);
    let status = gateway.sign(&withdrawal.request()).await.expect_err("sealed");
    assert_eq!(status.code(), Code::Unavailable);
    let groups =
        gateway.operator.clone().list_wallet_groups(pb::ListWalletGroupsRequest {}).await.expect("listed");
    assert!(groups.into_inner().groups.iter().all(|group| !group.unsealed));
}

#[tokio::test]
async fn a_wrong_unseal_key_at_start_ends_the_start() {
    let gateway = Gateway::start().await;
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"{}\"\n[seal]\nunseal_key = \"a wrong key of some length\"",
        gateway.database.url()
    );
    assert!(service::launch::<signer_gateway::SignerGateway>(&text).await.is_err());
}

#[tokio::test]
async fn a_frozen_chain_signs_and_replays_nothing_until_it_is_unfrozen() {
    let gateway = Gateway::start().await;
    let signed = Withdrawal::new(&gateway, 0);
    gateway.sign(&signed.request()).await.expect("signed");
    for chain in ["bsc", ""] {
        let freeze = pb::FreezeRequest { chain: chain.to_owned(), reason: "stolen key".to_owned() };
        gateway.operator.clone().freeze(freeze).await.expect("frozen");
        let shown = if chain.is_empty() { "*" } else { chain };
        assert_eq!(state(&gateway).await.frozen_chains, [shown]);
        gateway.refused(&signed.request(), Code::FailedPrecondition, "freeze.frozen").await;
        gateway
            .refused(&Withdrawal::new(&gateway, 1).request(), Code::FailedPrecondition, "freeze.frozen")
            .await;
        let unfreeze = pb::UnfreezeRequest { chain: chain.to_owned() };
        gateway.operator.clone().unfreeze(unfreeze).await.expect("unfrozen");
        gateway.sign(&signed.request()).await.expect("replayed");
    }
    // Another chain's freeze is no business of this one.
    let freeze = pb::FreezeRequest { chain: "tron".to_owned(), reason: "maintenance".to_owned() };
    gateway.operator.clone().freeze(freeze).await.expect("frozen");
    gateway.sign(&signed.request()).await.expect("replayed");
}

#[tokio::test]
async fn a_simulation_tells_each_rule_and_writes_nothing() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let simulate = async |request: pb::SignTransactionRequest| {
        let request = pb::SimulatePolicyRequest { request: Some(request) };
        gateway.operator.clone().simulate_policy(request).await.expect("simulated").into_inner()
    };
    let before = state(&gateway).await.audit_length;
    let answer = simulate(good.request()).await;
    assert!(answer.allowed && answer.rules.iter().all(|rule| rule.allowed), "{answer:?}");
    let rules: Vec<&str> = answer.rules.iter().map(|rule| rule.rule.as_str()).collect();
    assert_eq!(
        rules,
        [
            "freeze",
            "fence",
            "idempotency",
            "chain",
            "source",
            "asset",
            "destination",
            "fee",
            "limit/transaction",
            "approvals",
            "void_attestation",
            "limit/window",
            "payment_guard"
        ]
    );
    let bad = Withdrawal { amount: 11 * ETHER, max_fee: 200_000_000_000, ..good.clone() };
    let answer = simulate(bad.request()).await;
    let refused: Vec<&str> =
        answer.rules.iter().filter(|rule| !rule.allowed).map(|rule| rule.rule.as_str()).collect();
    assert!(!answer.allowed);
    assert_eq!(refused, ["fee", "limit/transaction", "approvals"]);
    assert_eq!(state(&gateway).await.audit_length, before, "nothing was written");
    let pool = gateway.database.pool().await;
    let rows: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM signing_records) + (SELECT count(*) FROM payments) + (SELECT count(*) FROM limit_usage)",
    )
    .fetch_one(&pool)
    .await
    .expect("counted");
    assert_eq!(rows, 0);
    gateway.sign(&good.request()).await.expect("a simulation used nothing up");
}

#[tokio::test]
async fn a_bad_reload_is_refused_and_the_old_policy_holds() {
    let gateway = Gateway::start().await;
    let good = Withdrawal::new(&gateway, 0);
    let strict = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"{}\"\n[chains.bsc]\naddress_format = \"evm\"\n\
         chain_id = 31337\nnative = \"BNB\"\nmax_fee = \"1\"",
        gateway.database.url()
    );
    assert!(
        gateway.running.reload(&strict.replace("chain_id = 31337", "")).is_err(),
        "a bad file is refused"
    );
    gateway.sign(&good.request()).await.expect("the old policy stays");
}
