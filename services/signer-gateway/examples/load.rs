//! temporary load measurement
use chrono::{TimeDelta, Utc};
use ed25519_dalek::{Signer, SigningKey};
use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use signer_gateway::SignerGateway;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::*;

const HOT: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
const CUSTOMER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

fn main() {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(run())
}

async fn run() {
    let clients: usize = std::env::args().nth(1).map_or(64, |s| s.parse().unwrap());
    let secs: u64 = 5;
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    let fsync: String =
        sqlx::query_scalar("SELECT current_setting('fsync') || current_setting('synchronous_commit')")
            .fetch_one(&pool)
            .await
            .unwrap();
    println!("fsync {fsync}");
    sqlx::query("CREATE TABLE ceiling (id bigserial primary key, v text)").execute(&pool).await.unwrap();
    // ceiling
    let wide = sqlx::postgres::PgPoolOptions::new()
        .max_connections(64)
        .min_connections(64)
        .connect(database.url())
        .await
        .unwrap();
    let n = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(secs);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (wide, n) = (wide.clone(), n.clone());
            tokio::spawn(async move {
                let mut c = wide.acquire().await.unwrap();
                while Instant::now() < end {
                    sqlx::query("INSERT INTO ceiling (v) VALUES ('x')").execute(&mut *c).await.unwrap();
                    n.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
    let ceiling = n.load(Ordering::Relaxed) / secs;
    println!("sqlx commit ceiling {ceiling}/s");
    wide.close().await;
    db::migrate::run(&pool, <SignerGateway as service::Service>::migrator().unwrap()).await.unwrap();
    let key = rpc::auth::new_key();
    let op = rpc::auth::new_key();
    let alice = SigningKey::from_bytes(&[3; 32]);
    let text = format!(
        r#"
        [server]
        listen = "127.0.0.1:0"
        [telemetry]
        filter = "warn"
        [database]
        url = "{}"
        [[auth.keys]]
        name = "execution"
        sha256 = "{}"
        roles = ["service:execution"]
        [[auth.keys]]
        name = "olga"
        sha256 = "{}"
        roles = ["operator", "auditor"]
        [seal]
        memory_kib = 8192
        iterations = 1
        unseal_key = "correct horse battery staple"
        [policy]
        [[policy.approvers]]
        name = "alice"
        public_key = "{}"
        [chains.bsc]
        address_format = "evm"
        chain_id = 31337
        native = "BNB"
        max_fee = "10000000000000000"
        fee_window = {{ window_s = 3600, amount = "1000000000000000000000000" }}
        [chains.bsc.assets.BNB]
        max_transaction = "10000000000000000000"
        window = {{ window_s = 86400, amount = "1500000000000000000000000000" }}
        tiers = [{{ approvals = 1 }}]
        "#,
        database.url(),
        key.1,
        op.1,
        hex::encode(alice.verifying_key().to_bytes())
    );
    let running = service::launch::<SignerGateway>(&text).await.unwrap();
    let mk = |k: &rpc::Secret| {
        SignerServiceClient::new(
            rpc::connect_lazy(&rpc::ClientConfig::new(running.url()).with_key(k.clone())).unwrap(),
        )
    };
    let mut operator = mk(&op.0);
    let group = operator
        .import_wallet_group(pb::ImportWalletGroupRequest {
            name: "hot".into(),
            purpose: "operation".into(),
            recovery_phrase: "test test test test test test test test test test test junk".into(),
            passphrase: String::new(),
        })
        .await
        .unwrap()
        .into_inner()
        .group
        .unwrap()
        .id;
    let nonce = Arc::new(AtomicU64::new(0));
    let total = 150_000usize;
    // pre-made requests so that approving costs nothing while measuring
    let expires = Utc::now() + TimeDelta::hours(1);
    let requests: Arc<Vec<pb::SignTransactionRequest>> = Arc::new(
        (0..total)
            .map(|i| {
                let (id, job) = (WithdrawalId::new(), JobId::new());
                let digest = PaymentDigest::compute(&Payment {
                    id,
                    chain: &"bsc".parse().unwrap(),
                    asset: &"BNB".parse().unwrap(),
                    destination: &Address::parse(AddressFormat::Evm, CUSTOMER).unwrap(),
                    amount: RawAmount::from(1000u64),
                });
                let signature =
                    alice.sign(&approval_message(digest, "alice", expires.timestamp())).to_bytes().to_vec();
                pb::SignTransactionRequest {
                    idempotency_key: format!("{job}/1"),
                    chain: "bsc".into(),
                    wallet_group_id: group.clone(),
                    derivation_index: 0,
                    tx_intent: Some(pb::TxIntent {
                        action: Some(pb::tx_intent::Action::NativeTransfer(pb::NativeTransfer {
                            from: HOT.into(),
                            to: CUSTOMER.into(),
                            amount_wei: "1000".into(),
                        })),
                    }),
                    parameters: Some(pb::sign_transaction_request::Parameters::Evm(pb::EvmParameters {
                        chain_id: 31337,
                        nonce: i as u64,
                        gas_limit: 21000,
                        max_fee_per_gas: "5000000000".into(),
                        max_priority_fee_per_gas: "1000000000".into(),
                        gas_price: String::new(),
                    })),
                    authorization: Some(pb::Authorization {
                        kind: Some(pb::authorization::Kind::Withdrawal(pb::WithdrawalAuthorization {
                            withdrawal_id: id.to_string(),
                            asset: "BNB".into(),
                            requested_by: "rita".into(),
                            approvals: vec![pb::ApprovalProof {
                                approver: "alice".into(),
                                signature,
                                expires_at: Some(proto::time::timestamp(expires)),
                            }],
                        })),
                        void_attestation: None,
                    }),
                    job_id: job.to_string(),
                    lease_epoch: 1,
                }
            })
            .collect(),
    );
    println!("made");
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let end = start + Duration::from_secs(secs);
    let base = mk(&key.0);
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (mut c, nonce, done, requests) =
                (base.clone(), nonce.clone(), done.clone(), requests.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    let i = nonce.fetch_add(1, Ordering::Relaxed) as usize;
                    if i >= total {
                        break;
                    }
                    c.sign_transaction(requests[i].clone()).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    println!("{clients} clients: {rate:.0} sign/s, ratio {:.2}", rate / ceiling as f64);
    println!(
        "{}",
        telemetry::metrics::render()
            .lines()
            .filter(|l| l.contains("bursar_signer_batch") && (l.contains("sum") || l.contains("count")))
            .collect::<Vec<_>>()
            .join("\n")
    );
    let v = operator.verify_audit(pb::VerifyAuditRequest::default()).await.unwrap().into_inner();
    println!("verify {v:?}");
}
