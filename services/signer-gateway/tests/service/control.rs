//! Seal, freeze, simulation.

use proto::signer::v1 as pb;
use tonic::Code;

use crate::support::*;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

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
    assert_eq!(gateway.last_reason().await, "unseal.wrong_key");
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

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_waited_when_it_was_sealed_are_not_signed_afterwards() {
    let gateway = Gateway::start().await;
    let pool = gateway.database.pool().await;
    // Nothing can be decided while the log's head is held: the first request waits there, the others behind it.
    let mut held = db::begin(&pool).await.expect("begun");
    sqlx::query("SELECT FROM audit_head FOR UPDATE").execute(&mut *held).await.expect("held");
    let waiting = || {
        gateway.count(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    };
    let send = |nonce: u64| {
        let request = Withdrawal::small(&gateway, nonce).request();
        let mut service = gateway.service.clone();
        tokio::spawn(async move { service.sign_transaction(request).await })
    };
    let mut asked = vec![send(0)];
    testkit::wait_for("the first to wait", PATIENCE, || async { waiting().await == 1 }).await;
    asked.extend((1..8).map(send));
    // Each answer takes longer than a request needs to get in line.
    for _ in 0..20 {
        assert!(!state(&gateway).await.sealed);
    }
    let mut operator = gateway.operator.clone();
    let sealing = tokio::spawn(async move { operator.seal(pb::SealRequest {}).await });
    testkit::wait_for("the keys to be gone", PATIENCE, || async { state(&gateway).await.sealed }).await;
    held.rollback().await.expect("released");
    sealing.await.expect("joined").expect("sealed");
    let records = || gateway.count("SELECT count(*) FROM signing_records");
    let before = records().await;
    let mut signed = 0;
    for answer in asked {
        match answer.await.expect("joined") {
            Ok(_) => signed += 1,
            Err(status) => {
                assert_eq!(rpc::error::reason_of(&status).as_deref(), Some("SEALED"), "{status:?}")
            }
        }
    }
    assert!(signed <= 1, "only what was being written when it was sealed");
    assert_eq!((records().await, signed), (before, before), "nothing was signed after it was sealed");
    assert!(gateway.verify(None).await.intact);
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
            "caller",
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
    for sql in ["SELECT count(*) FROM signing_records", "SELECT count(*) FROM payments"] {
        assert_eq!(gateway.count(sql).await, 0);
    }
    assert_eq!(gateway.count("SELECT count(*) FROM limit_usage").await, 0);
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

/// The same settings with another limit for one transaction of BNB.
fn limited(settings: &str, limit: &str) -> String {
    let was = "max_transaction = \"10000000000000000000\"";
    assert!(settings.contains(was));
    settings.replace(was, &format!("max_transaction = \"{limit}\""))
}

#[tokio::test]
async fn a_valid_reload_is_in_force_at_once_and_a_bad_one_changes_nothing() {
    let gateway = Gateway::start().await;
    let settings = gateway.settings();
    gateway.sign(&Withdrawal::new(&gateway, 0).request()).await.expect("2 of 10");
    for round in 1..6 {
        gateway.running.reload(&limited(&settings, "1999999999999999999")).expect("reloaded");
        let above = Withdrawal::new(&gateway, round);
        gateway.refused(&above.request(), Code::PermissionDenied, "limit.transaction").await;
        let nonsense = limited(&settings, "a lot");
        assert!(gateway.running.reload(&nonsense).is_err());
        gateway.refused(&above.request(), Code::PermissionDenied, "limit.transaction").await;
        gateway.running.reload(&settings).expect("reloaded");
        gateway.sign(&above.request()).await.expect("within the limit again");
    }
    // Who approves is part of it: a key that was taken out signs nothing any more.
    let without_bob = settings.replace("name = \"bob\"", "name = \"robert\"");
    gateway.running.reload(&without_bob).expect("reloaded");
    let approved = Withdrawal { amount: 1, ..Withdrawal::new(&gateway, 9) }.approved_by(&["bob"]);
    gateway.refused(&approved.request(), Code::PermissionDenied, "approvals.unknown_approver").await;
}

/// A process of its own with these settings, unsealed.
async fn start_process(
    gateway: &Gateway,
    file: &std::path::Path,
    settings: &str,
    port: u16,
) -> tokio::process::Child {
    std::fs::write(file, settings).expect("written");
    let process = tokio::process::Command::new(env!("CARGO_BIN_EXE_signer-gateway"))
        .args(["serve", "--config"])
        .arg(file)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    let (_, operator) = gateway.clients_of(&format!("http://127.0.0.1:{port}"));
    testkit::wait_for("the process", PATIENCE, || async {
        operator.clone().get_status(pb::GetStatusRequest {}).await.is_ok_and(|it| !it.into_inner().sealed)
    })
    .await;
    process
}

fn send(process: &tokio::process::Child, signal: &str) {
    let pid = process.id().expect("running").to_string();
    let sent = std::process::Command::new("kill").args([signal, &pid]).status().expect("kill");
    assert!(sent.success());
}

/// What the process on this port answers at a path for probes and scrapers.
async fn fetch(port: u16, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let asked = format!("GET {path} HTTP/1.1\r\nhost: signer\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.expect("asked");
    let mut told = String::new();
    stream.read_to_string(&mut told).await.expect("told");
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_tells_what_is_frozen_whoever_was_asked_and_when() {
    let gateway = Gateway::start().await;
    let freeze = |chain: &str| pb::FreezeRequest { chain: chain.to_owned(), reason: "drill".to_owned() };
    gateway.operator.clone().freeze(freeze("tron")).await.expect("frozen");
    // Started after the freeze, and asked for nothing.
    let dir = testkit::scratch_dir();
    let port = testkit::free_port();
    let settings = gateway.settings().replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let mut process = start_process(&gateway, &dir.path().join("signer.toml"), &settings, port).await;
    let told = |chain: &'static str, value: u8| async move {
        let line = format!("bursar_signer_frozen{{chain=\"{chain}\"}} {value}");
        testkit::wait_for(&line, PATIENCE, || async { fetch(port, "/metrics").await.contains(&line) }).await;
    };
    told("tron", 1).await;
    told("bsc", 0).await;
    gateway.operator.clone().freeze(freeze("")).await.expect("frozen");
    told("*", 1).await;
    for chain in ["tron", ""] {
        let unfreeze = pb::UnfreezeRequest { chain: chain.to_owned() };
        gateway.operator.clone().unfreeze(unfreeze).await.expect("unfrozen");
    }
    told("tron", 0).await;
    told("*", 0).await;
    process.kill().await.expect("killed");
}

#[tokio::test]
async fn a_misspelt_chain_is_not_frozen_but_refused() {
    let gateway = Gateway::start().await;
    let freeze = |chain: &str| pb::FreezeRequest { chain: chain.to_owned(), reason: "theft".to_owned() };
    let status = gateway.operator.clone().freeze(freeze("bcs")).await.expect_err("misspelt");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("bcs"), "{status:?}");
    assert!(state(&gateway).await.frozen_chains.is_empty());
    let last = gateway.audit().await.pop().expect("an entry");
    assert_eq!((last.decision.as_str(), last.reason.as_str()), ("refused", "freeze.unknown_chain"));
    for reason in [String::new(), "x".repeat(501), "the\0ft".to_owned()] {
        let freeze = pb::FreezeRequest { chain: "bsc".to_owned(), reason };
        let status = gateway.operator.clone().freeze(freeze).await.expect_err("no reason");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
    // A chain that the policy lost meanwhile can still be unfrozen.
    gateway.operator.clone().unfreeze(pb::UnfreezeRequest { chain: "bcs".to_owned() }).await.expect("free");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_while_it_stops_is_still_signed() {
    let gateway = Gateway::start().await;
    let dir = testkit::scratch_dir();
    let port = testkit::free_port();
    // Long enough for everything below; nobody waits for its end.
    let settings = gateway.settings().replace(
        "listen = \"127.0.0.1:0\"",
        &format!("listen = \"127.0.0.1:{port}\"\nlimits = {{ notice_ms = 600000 }}"),
    );
    let mut process = start_process(&gateway, &dir.path().join("signer.toml"), &settings, port).await;
    let (service, _) = gateway.clients_of(&format!("http://127.0.0.1:{port}"));
    send(&process, "-TERM");
    testkit::wait_for("the notice", PATIENCE, || async {
        !fetch(port, "/readyz").await.starts_with("HTTP/1.1 200")
    })
    .await;
    for nonce in 0..20 {
        let small = Withdrawal::small(&gateway, nonce);
        service.clone().sign_transaction(small.request()).await.expect("signed during the notice");
    }
    process.kill().await.expect("killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_takes_a_new_policy_on_sighup_and_keeps_the_old_one_when_it_is_bad() {
    let gateway = Gateway::start().await;
    let dir = testkit::scratch_dir();
    let file = dir.path().join("signer.toml");
    let port = testkit::free_port();
    let settings = gateway.settings().replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let mut process = start_process(&gateway, &file, &settings, port).await;
    let (service, _) = gateway.clients_of(&format!("http://127.0.0.1:{port}"));
    let hang_up = || send(&process, "-HUP");
    let limit_of = |nonce: u64| {
        let request = pb::SimulatePolicyRequest { request: Some(Withdrawal::new(&gateway, nonce).request()) };
        let mut service = service.clone();
        async move { service.simulate_policy(request).await.expect("simulated").into_inner().allowed }
    };
    assert!(limit_of(0).await);
    std::fs::write(&file, limited(&settings, "1")).expect("written");
    hang_up();
    testkit::wait_for("the new limit", PATIENCE, || async { !limit_of(0).await }).await;
    // A bad file, then one that changes only the log filter: when the latter is in, the former was refused.
    std::fs::write(&file, limited(&settings, "-1")).expect("written");
    hang_up();
    let status = service.clone().sign_transaction(Withdrawal::new(&gateway, 0).request()).await;
    assert_eq!(rpc::error::reason_of(&status.expect_err("refused")).as_deref(), Some("LIMIT_TRANSACTION"));
    std::fs::write(&file, &settings).expect("written");
    hang_up();
    testkit::wait_for("the old limit", PATIENCE, || async { limit_of(0).await }).await;
    process.kill().await.expect("killed");
}
