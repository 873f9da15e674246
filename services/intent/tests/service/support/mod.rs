//! What the tests share: a running service with callers, a catalogue, approvers and a fake of execution.

pub(crate) mod execution;

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use intent::Intent;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use proto::intent::v1::policy_service_client::PolicyServiceClient;
use proto::intent::v1::progress_service_client::ProgressServiceClient;
use proto::intent::v1::record_progress_request::Progress;
use proto::time::timestamp;
use rpc::client::RetryConfig;
use rpc::{Client, ClientConfig, connect_lazy};
use service::Running;
use sqlx::PgPool;
use testkit::Database;
use types::{PaymentDigest, UserId, WithdrawalId, approval_message};

use execution::Execution;

pub(crate) const WALLET: &str = "0x52908400098527886E0F7030069857D2E4169EE7";
pub(crate) const HOT_WALLET: &str = "0x8617E340B3D01FA5F11F306F4090FD50E238070D";
pub(crate) const TOKEN: &str = "0xde709f2102306220921060314715629080e2fb77";
pub(crate) const TRON_WALLET: &str = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";
pub(crate) const HASH: &str = "0x00e1d2c3b4a5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f";
pub(crate) const OTHER_HASH: &str = "0x11e1d2c3b4a5968778695a4b3c2d1e0ff0e1d2c3b4a5968778695a4b3c2d1e0f";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Names of callers, which are also their keys' texts, with their roles.
const CALLERS: [(&str, &[&str]); 9] = [
    ("alice", &["requester"]),
    ("mallory", &["requester"]),
    ("ann", &["approver"]),
    ("bob", &["approver", "requester"]),
    ("cid", &["approver"]),
    ("keyless", &["approver"]),
    ("ops", &["operator", "auditor"]),
    ("execution", &["service:execution"]),
    ("confirmation", &["service:confirmation"]),
];
pub(crate) const APPROVERS: [&str; 3] = ["ann", "bob", "cid"];

/// 20,000 completed requests of many customers over half a year, each with a history, an approval and some imported.
pub(crate) const LONG_HISTORY: &str = "
    INSERT INTO withdrawal_requests (id, origin, idempotency_key, payload_hash, user_id, chain, asset, amount_raw, decimals,
        destination, memo, priority_rank, labels, requested_by, required_approvals, status, last_sequence, created_at,
        updated_at, approved_at, queued_at, finished_at, final_tx_hash, final_block)
    SELECT gen_random_uuid(), 'request', 'k' || n, sha256('x'), gen_random_uuid(), 'bsc', 'USDT', 5, 18, '0x' || n, '', 1,
           '{}', 'alice', 1, 'completed', 1, at, at, at, at, at, '0x1', 1
    FROM generate_series(1, 20000) AS n, LATERAL (SELECT now() + n * interval '13 min' AS at) AS time;
    INSERT INTO transitions (request_id, sequence, to_status, actor, detail, at)
    SELECT id, 1, 'pending', 'alice', '', created_at FROM withdrawal_requests WHERE asset = 'USDT';
    INSERT INTO approvals (request_id, approver, requested_by, signature, expires_at, approved_at)
    SELECT id, 'ann', 'alice', decode(repeat('00', 64), 'hex'), created_at + interval '1 h', created_at
    FROM withdrawal_requests WHERE asset = 'USDT';
    INSERT INTO imports (request_id, chain, from_address, tx_hash)
    SELECT id, chain, '0x2', idempotency_key FROM withdrawal_requests WHERE asset = 'USDT' LIMIT 10000;
    ANALYZE";

pub(crate) struct Stack {
    pub(crate) database: Database,
    pub(crate) pool: PgPool,
    pub(crate) execution: Execution,
    pub(crate) running: Running<Intent>,
}

/// A service with the given approval default, on an empty database with a catalogue.
pub(crate) async fn stack_with(policy: &str) -> Stack {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &intent::MIGRATOR).await.unwrap();
    let execution = Execution::start().await;
    let running = service::launch::<Intent>(&config(database.url(), &execution.url(), policy)).await.unwrap();
    let stack = Stack { database, pool, execution, running };
    for entry in catalogue() {
        stack.put_entry(entry).await;
    }
    stack
}

/// Two approvals for every asset without a policy.
pub(crate) async fn stack() -> Stack {
    stack_with("[policy]\ndefault_required_approvals = 2\n").await
}

/// What an older binary knew of the tables.
pub(crate) fn migrations_before(version: i64) -> sqlx::migrate::Migrator {
    let known = intent::MIGRATOR.iter().filter(|step| step.version < version).cloned();
    sqlx::migrate::Migrator::with_migrations(known.collect())
}

pub(crate) fn config(database: &str, execution: &str, policy: &str) -> String {
    let mut text = format!(
        "[server]\nlisten = '127.0.0.1:0'\n[database]\nurl = '{database}'\n[telemetry]\nfilter = 'error'\n\
         [clients.execution]\nurl = '{execution}'\napi_key = 'intent'\n{policy}"
    );
    for (name, roles) in CALLERS {
        let hash = rpc::auth::hash_key(name);
        text.push_str(&format!("[[auth.keys]]\nname = '{name}'\nsha256 = '{hash}'\nroles = {roles:?}\n"));
    }
    for name in APPROVERS {
        let key = hex::encode(signing_key(name).verifying_key().as_bytes());
        text.push_str(&format!("[approvers.{name}]\npublic_key = '{key}'\n"));
    }
    text
}

pub(crate) fn signing_key(name: &str) -> SigningKey {
    let mut seed = [7; 32];
    seed[..name.len()].copy_from_slice(name.as_bytes());
    SigningKey::from_bytes(&seed)
}

pub(crate) fn entry(chain: &str, asset: &str, decimals: u32, contract: &str) -> pb::CatalogueEntry {
    let tron = chain == "tron";
    pb::CatalogueEntry {
        chain: chain.to_owned(),
        address_format: if tron { "tron" } else { "evm" }.to_owned(),
        asset: asset.to_owned(),
        decimals,
        contract_address: contract.to_owned(),
        enabled: true,
        min_withdrawal_raw: "0".to_owned(),
        revision: 1,
        own_addresses: if tron { vec![] } else { vec![HOT_WALLET.to_owned()] },
    }
}

fn catalogue() -> Vec<pb::CatalogueEntry> {
    vec![
        entry("bsc", "BNB", 18, ""),
        entry("bsc", "USDT", 18, TOKEN),
        entry("bsc", "SIX", 6, "0x27b1fdb04752bbc536007a920d24acb045561c26"),
        entry("bsc", "NONE", 0, "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
        entry("bsc", "WIDE", 27, "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"),
        entry("tron", "TRX", 6, ""),
    ]
}

pub(crate) fn client(url: &str, caller: &str) -> Client {
    let mut config = ClientConfig::new(url).with_key(rpc::Secret::new(caller));
    // The tests are about single answers of the service.
    config.retry = RetryConfig { max_attempts: 1, ..RetryConfig::default() };
    config.timeout_ms = 30_000;
    connect_lazy(&config).unwrap()
}

pub(crate) fn create(key: &str) -> pb::CreateWithdrawalRequest {
    pb::CreateWithdrawalRequest {
        on_behalf_of: String::new(),
        idempotency_key: key.to_owned(),
        user_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        chain: "bsc".to_owned(),
        asset: "USDT".to_owned(),
        amount: "12.5".to_owned(),
        destination: WALLET.to_owned(),
        memo: "rent".to_owned(),
        priority: pb::Priority::High.into(),
        labels: HashMap::from([("case".to_owned(), "42".to_owned())]),
    }
}

/// A fresh customer's request.
pub(crate) fn create_for(key: &str, user: UserId, amount: &str) -> pb::CreateWithdrawalRequest {
    pb::CreateWithdrawalRequest { user_id: user.to_string(), amount: amount.to_owned(), ..create(key) }
}

pub(crate) fn expiry() -> DateTime<Utc> {
    (Utc::now() + TimeDelta::hours(1)).trunc_subsecs(0)
}

/// A consent as an approver's own tool makes it, from what the service shows.
pub(crate) fn consent(
    withdrawal: &pb::Withdrawal,
    approver: &str,
    expires_at: DateTime<Utc>,
) -> pb::ApproveWithdrawalRequest {
    let digest: PaymentDigest = withdrawal.payment_digest.parse().unwrap();
    let message = approval_message(digest, approver, expires_at.timestamp());
    pb::ApproveWithdrawalRequest {
        id: withdrawal.id.clone(),
        signature: signing_key(approver).sign(&message).to_vec(),
        expires_at: Some(timestamp(expires_at)),
    }
}

pub(crate) type RpcResult<T> = Result<T, tonic::Status>;

impl Stack {
    pub(crate) fn intent(&self, caller: &str) -> IntentServiceClient<Client> {
        IntentServiceClient::new(client(&self.running.url(), caller))
    }

    pub(crate) fn policies(&self) -> PolicyServiceClient<Client> {
        PolicyServiceClient::new(client(&self.running.url(), "ops"))
    }

    pub(crate) fn progress_as(&self, caller: &str) -> ProgressServiceClient<Client> {
        ProgressServiceClient::new(client(&self.running.url(), caller))
    }

    pub(crate) async fn put_entry(&self, entry: pb::CatalogueEntry) {
        let request = pb::PutCatalogueEntryRequest { entry: Some(entry) };
        self.progress_as("execution").put_catalogue_entry(request).await.unwrap();
    }

    pub(crate) async fn create(&self, request: pb::CreateWithdrawalRequest) -> RpcResult<pb::Withdrawal> {
        self.create_as("alice", request).await
    }

    pub(crate) async fn create_as(
        &self,
        caller: &str,
        request: pb::CreateWithdrawalRequest,
    ) -> RpcResult<pb::Withdrawal> {
        Ok(self.intent(caller).create_withdrawal(request).await?.into_inner().withdrawal.unwrap())
    }

    pub(crate) async fn get(&self, id: &str) -> pb::Withdrawal {
        let request = pb::GetWithdrawalRequest { id: id.to_owned() };
        self.intent("ops").get_withdrawal(request).await.unwrap().into_inner().withdrawal.unwrap()
    }

    pub(crate) async fn transitions(&self, id: &str) -> Vec<pb::Transition> {
        let request = pb::ListTransitionsRequest { id: id.to_owned() };
        self.intent("ops").list_transitions(request).await.unwrap().into_inner().transitions
    }

    pub(crate) async fn approve(
        &self,
        withdrawal: &pb::Withdrawal,
        approver: &str,
    ) -> RpcResult<pb::Withdrawal> {
        self.send_consent(approver, consent(withdrawal, approver, expiry())).await
    }

    pub(crate) async fn send_consent(
        &self,
        caller: &str,
        request: pb::ApproveWithdrawalRequest,
    ) -> RpcResult<pb::Withdrawal> {
        Ok(self.intent(caller).approve_withdrawal(request).await?.into_inner().withdrawal.unwrap())
    }

    /// A request that has reached its quorum.
    pub(crate) async fn approved(&self, key: &str) -> pb::Withdrawal {
        let withdrawal = self.create(create(key)).await.unwrap();
        self.approve(&withdrawal, "ann").await.unwrap();
        self.approve(&withdrawal, "cid").await.unwrap()
    }

    pub(crate) async fn reject(&self, id: &str) -> RpcResult<pb::Withdrawal> {
        let request = pb::RejectWithdrawalRequest { id: id.to_owned(), reason: "suspicious".to_owned() };
        Ok(self.intent("ann").reject_withdrawal(request).await?.into_inner().withdrawal.unwrap())
    }

    pub(crate) async fn cancel(&self, caller: &str, id: &str) -> RpcResult<pb::Withdrawal> {
        let request = pb::CancelWithdrawalRequest { id: id.to_owned(), reason: String::new() };
        Ok(self.intent(caller).cancel_withdrawal(request).await?.into_inner().withdrawal.unwrap())
    }

    pub(crate) async fn report(&self, id: &str, at: DateTime<Utc>, progress: Progress) -> RpcResult<()> {
        let request = pb::RecordProgressRequest {
            withdrawal_id: id.to_owned(),
            at: Some(timestamp(at)),
            progress: Some(progress),
        };
        self.progress_as("execution").record_progress(request).await.map(drop)
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until execution has received so many requests and the outbox is empty.
    pub(crate) async fn handed_over(&self, times: usize) {
        let done = || async { self.execution.enqueued().len() == times && self.outbox().await == 0 };
        testkit::wait_for("execution to receive the requests", PATIENCE, done).await;
    }

    /// Messages that are still in the outbox, without parked ones.
    pub(crate) async fn outbox(&self) -> i64 {
        self.count("SELECT count(*) FROM outbox").await
    }
}

pub(crate) fn queued() -> Progress {
    Progress::Queued(pb::Queued { job_id: WithdrawalId::new().to_string() })
}

pub(crate) fn completed(hash: &str) -> Progress {
    Progress::Completed(pb::Completed { tx_hash: hash.to_owned(), block_number: 77 })
}

pub(crate) fn failed() -> Progress {
    Progress::Failed(pb::Failed { reason: "gave up".to_owned() })
}

pub(crate) fn blocked(reason: &str) -> Progress {
    Progress::Blocked(pb::Blocked { reason: reason.to_owned() })
}

/// The stable reason of a refusal.
pub(crate) fn reason(status: &tonic::Status) -> String {
    rpc::error::reason_of(status).unwrap_or_default()
}

/// The fields that a refusal names.
pub(crate) fn fields(status: &tonic::Status) -> Vec<String> {
    use tonic_types::StatusExt as _;
    let violations =
        status.get_details_bad_request().map(|details| details.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}
