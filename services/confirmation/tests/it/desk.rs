//! A desk to work at: a chain of its own, a database of its own, loops that tick when told, and wallets to pay from.

use std::time::Duration;

use alloy_primitives::{Bytes, U256, hex, keccak256};
use chrono::TimeDelta;
use confirmation::chains::{ChainApp, Settings};
use confirmation::config::Follow;
use confirmation::watch::app::PutWatch;
use confirmation::watch::row::Stored;
use confirmation::watch::verdict::AttestationKey;
use confirmation::watch::{NewTx, WatchApp, WatchError};
use confirmation::worker::{ChainLoop, Parts, Ticked, build_edge};
use payment::{AssetRef, Transfer};
use prost::Message as _;
use proto::execution::v1::Verdict;
use proto::execution::v1::verdict::Finding;
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::{AnvilOptions, Chain, Database, Mining};
use types::{Address, AddressFormat, ChainName, JobId, RawAmount, TxHash, WithdrawalId};

pub(crate) const SEED: [u8; 32] = [7; 32];
pub(crate) const DEPTH: u32 = 3;

/// The rich accounts of every anvil.
const ACCOUNTS: [&str; 4] = [
    "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
    "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    "0x90F79bf6EB2c4f870365E785982E1f101E93b906",
];

pub(crate) struct Desk {
    pub(crate) chain: Chain,
    pub(crate) db: Database,
    pub(crate) pool: PgPool,
    pub(crate) watches: WatchApp,
    pub(crate) chains: ChainApp,
    settings: Settings,
}

/// A signed transaction.
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    pub(crate) raw: String,
    pub(crate) hash: TxHash,
    pub(crate) nonce: u64,
}

impl Signed {
    pub(crate) fn watched(&self) -> NewTx {
        NewTx {
            hash: self.hash,
            is_cancellation: false,
            nonce: Some(self.nonce),
            expires_at: None,
            reference_block: 0,
            proven: true,
        }
    }

    pub(crate) fn cancelling(&self) -> NewTx {
        NewTx { is_cancellation: true, ..self.watched() }
    }
}

pub(crate) fn chain_name() -> ChainName {
    "bsc".parse().unwrap()
}

pub(crate) fn address(text: &str) -> Address {
    Address::parse(AddressFormat::Evm, text).unwrap()
}

pub(crate) fn account(index: usize) -> Address {
    address(ACCOUNTS[index])
}

/// A destination that nobody else uses.
pub(crate) fn stranger() -> Address {
    let id = JobId::new().as_uuid();
    let mut body = [0xab; 20];
    body[..16].copy_from_slice(id.as_bytes());
    Address::from_body(AddressFormat::Evm, body)
}

pub(crate) fn amount(raw: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(raw))
}

pub(crate) fn native(to: Address, raw: u64) -> Transfer {
    Transfer { asset: AssetRef::Native, from: account(0), to, amount: amount(raw) }
}

impl Desk {
    /// A chain that makes blocks only when told, final after [`DEPTH`] blocks.
    pub(crate) async fn new() -> Self {
        Self::with_depth(DEPTH).await
    }

    pub(crate) async fn with_depth(depth: u32) -> Self {
        let chain = testkit::anvil(AnvilOptions { mining: Mining::Manual, ..AnvilOptions::default() }).await;
        let db = testkit::postgres().await;
        let pool = db.pool().await;
        db::migrate::run(&pool, &confirmation::MIGRATOR).await.unwrap();
        let settings = Settings {
            name: chain_name(),
            kind: AddressFormat::Evm,
            network_id: 56,
            nodes: vec![chain.url()],
            depth,
            stuck_after: None,
            revision: 1,
        };
        let (watches, chains) = (WatchApp::new(pool.clone()), ChainApp::new(pool.clone()));
        let mut desk = Self { chain, db, pool, watches, chains, settings };
        desk.settle_in(|_| {}).await;
        // A little past, so that there is a final block.
        desk.chain.mine(5).await;
        desk
    }

    /// Changes the chain's settings, as execution's catalogue would.
    pub(crate) async fn settle_in(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.settings.revision += 1;
        self.chains.put(&self.settings).await.unwrap();
    }

    /// A loop as a replica of the service has it; its timers are always due.
    pub(crate) fn replica(&self, owner: &str) -> ChainLoop {
        let follow = Follow {
            lease: Duration::from_secs(20),
            void_check: Duration::ZERO,
            retry: Duration::ZERO,
            ring_blocks: 64,
            ..Follow::default()
        };
        self.replica_with(owner, follow)
    }

    pub(crate) fn replica_with(&self, owner: &str, follow: Follow) -> ChainLoop {
        let edge = build_edge(&self.settings, follow.node_timeout).unwrap();
        let key = AttestationKey::from_seed(&SEED);
        let parts = Parts { pool: self.pool.clone(), key, follow, owner: owner.to_owned() };
        ChainLoop::new(parts, self.settings.clone(), edge)
    }

    pub(crate) async fn sign(&self, nonce: u64, to: Address, value: u64, data: &[u8]) -> Signed {
        let data = Bytes::copy_from_slice(data);
        let (value, gas_price) = (U256::from(value), U256::from(2_000_000_000_u64));
        self.signed(
            nonce,
            json!({ "to": to.to_string(), "value": value, "gasPrice": gas_price, "data": data }),
        )
        .await
    }

    /// A native payment at another price.
    pub(crate) async fn sign_at(&self, nonce: u64, to: Address, value: u64, gas_price: u64) -> Signed {
        let (value, gas_price) = (U256::from(value), U256::from(gas_price));
        self.signed(nonce, json!({ "to": to.to_string(), "value": value, "gasPrice": gas_price })).await
    }

    async fn signed(&self, nonce: u64, mut request: Value) -> Signed {
        request["from"] = json!(account(0).to_string());
        request["gas"] = json!("0x493e0");
        request["nonce"] = json!(U256::from(nonce));
        let raw = self.chain.call("eth_signTransaction", json!([request])).await;
        let raw = raw.as_str().unwrap().to_owned();
        let hash = TxHash::from(keccak256(hex::decode(&raw).unwrap()));
        Signed { raw, hash, nonce }
    }

    pub(crate) async fn send(&self, signed: &Signed) {
        self.chain.call("eth_sendRawTransaction", json!([signed.raw])).await;
    }

    pub(crate) async fn mine(&self, blocks: u64) {
        self.chain.mine(blocks).await;
    }

    pub(crate) async fn height(&self) -> u64 {
        let number = self.chain.call("eth_blockNumber", json!([])).await;
        u64::from_str_radix(number.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    /// Erases the newest blocks and puts empty ones in their place.
    pub(crate) async fn reorg(&self, depth: u64) {
        self.chain.call("anvil_reorg", json!([depth, []])).await;
    }

    pub(crate) async fn put(&self, effect: Transfer, transactions: Vec<NewTx>) -> JobId {
        let job = JobId::new();
        self.extend(job, effect, transactions).await.unwrap();
        job
    }

    pub(crate) async fn extend(
        &self,
        job: JobId,
        effect: Transfer,
        transactions: Vec<NewTx>,
    ) -> Result<Stored, WatchError> {
        // The withdrawal's id is the job's, so that a repeated request is the same.
        let withdrawal = Some(WithdrawalId::from_uuid(job.as_uuid()));
        self.watches.put(PutWatch { job, withdrawal, chain: chain_name(), effect, transactions }).await
    }

    /// Makes it as if the job's transactions had been waiting for two hours.
    pub(crate) async fn age(&self, job: JobId) {
        let aged = "UPDATE watches SET waiting_since = now() - interval '2 hours', check_due_at = now() WHERE job_id = $1";
        sqlx::query(aged).bind(job.as_uuid()).execute(&self.pool).await.unwrap();
    }

    pub(crate) async fn status(&self, job: JobId) -> &'static str {
        self.watches.get(job).await.unwrap().watch.status()
    }

    pub(crate) async fn delayed(&self, job: JobId) -> String {
        self.watches.get(job).await.unwrap().delayed_reason
    }

    /// Everything told about a job, oldest first.
    pub(crate) async fn verdicts(&self, job: JobId) -> Vec<Finding> {
        let rows: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT payload FROM verdicts WHERE job_id = $1 ORDER BY at, id")
                .bind(job.as_uuid())
                .fetch_all(&self.pool)
                .await
                .unwrap();
        rows.iter().map(|row| Verdict::decode(row.as_slice()).unwrap().finding.unwrap()).collect()
    }

    pub(crate) async fn kinds(&self, job: JobId) -> Vec<&'static str> {
        self.verdicts(job).await.iter().map(kind).collect()
    }

    /// What waits in the outbox, by topic.
    pub(crate) async fn outbox(&self, topic: &str) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM outbox WHERE topic = $1").bind(topic);
        count.fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn halted(&self) -> Option<String> {
        self.chains.standings().await.unwrap().remove(0).halted_reason
    }

    /// Deploys one of the test contracts and gives the payer plenty of it.
    pub(crate) async fn token(&self, name: &str, constructor: &[u8]) -> Address {
        let file = format!("{}/../../tests/contracts/artifacts/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let artifact: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let code = artifact["bytecode"].as_str().unwrap();
        let code = if code.starts_with("0x") { code.to_owned() } else { format!("0x{code}") };
        let deploy = json!([{
            "from": account(3).to_string(), "gas": "0x4c4b40", "data": format!("{code}{}", hex::encode(constructor)),
        }]);
        let sent = self.chain.call("eth_sendTransaction", deploy).await;
        self.mine(1).await;
        let receipt = self.chain.call("eth_getTransactionReceipt", json!([sent])).await;
        let contract = address_of(receipt["contractAddress"].as_str().unwrap());
        let mint = call_data("40c10f19", account(0), 1_000_000);
        let mint = json!([{
            "from": account(3).to_string(), "to": contract.to_string(), "gas": "0x493e0", "data": Bytes::from(mint),
        }]);
        self.chain.call("eth_sendTransaction", mint).await;
        self.mine(1).await;
        contract
    }
}

fn address_of(text: &str) -> Address {
    Address::parse(AddressFormat::Evm, &text.to_lowercase()).unwrap()
}

/// A call with an address and a number: `transfer` is `a9059cbb`, `mint` is `40c10f19`.
pub(crate) fn call_data(selector: &str, to: Address, value: u64) -> Vec<u8> {
    let mut data = hex::decode(selector).unwrap();
    data.extend([0; 12]);
    data.extend(to.body());
    data.extend(U256::from(value).to_be_bytes::<32>());
    data
}

/// Constructor arguments (string, string), both empty.
pub(crate) fn two_empty_strings() -> Vec<u8> {
    [64_u64, 96, 0, 0].iter().flat_map(|word| U256::from(*word).to_be_bytes::<32>()).collect()
}

pub(crate) fn token_transfer(contract: Address, to: Address, raw: u64) -> Transfer {
    Transfer { asset: AssetRef::Token(contract), from: account(0), to, amount: amount(raw) }
}

pub(crate) fn kind(finding: &Finding) -> &'static str {
    match finding {
        Finding::Settled(_) => "settled",
        Finding::Reverted(_) => "reverted",
        Finding::Void(_) => "void",
        Finding::Stuck(_) => "stuck",
        Finding::Reopened(_) => "reopened",
        Finding::Cancelled(_) => "cancelled",
        Finding::Contradicted(_) => "contradicted",
    }
}

/// Ticks until there is nothing more to do at once.
pub(crate) async fn tick(replica: &mut ChainLoop) {
    // Two rounds at least: what a tick finds by looking up is judged by the next.
    let mut left = 2;
    while left > 0 {
        match replica.tick().await.unwrap() {
            Ticked::Busy => {}
            Ticked::Idle => left -= 1,
            Ticked::NotOurs => panic!("another replica holds the chain"),
        }
    }
}

/// Ticks until the condition holds. A tick that fails is what faults look like: the loop goes on, as in the service.
pub(crate) async fn tick_until(what: &str, replica: &mut ChainLoop, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            replica.tick().await.ok();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited in vain for: {what}"));
}

pub(crate) fn public_key() -> ed25519_dalek::VerifyingKey {
    ed25519_dalek::SigningKey::from_bytes(&SEED).verifying_key()
}

/// Whether this is confirmation's word that these hashes of the job can never pay.
pub(crate) fn is_attested(
    job: JobId,
    hashes: &[TxHash],
    signature: &[u8],
    at: Option<prost_types::Timestamp>,
) -> bool {
    let message = types::void_message(job, hashes, at.unwrap().seconds);
    let signature = ed25519_dalek::Signature::from_slice(signature).unwrap();
    public_key().verify_strict(&message, &signature).is_ok()
}

/// Longest wait of a test for something that happens by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn seconds(span: &prost_types::Duration) -> TimeDelta {
    TimeDelta::seconds(span.seconds)
}
