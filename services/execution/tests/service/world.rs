//! A whole execution service in pieces: database, chain, signer, and the parts a test drives by hand.

use std::sync::Arc;
use std::time::Duration;

use execution::Execution;
use execution::catalogue::{Catalogue, Chain, Finality, NewAsset};
use execution::chains::Chains;
use execution::engine::{Edges, QueueWorker};
use execution::job::{Approval, Attempt, Job, Jobs, JobsConfig, NewWithdrawal, Schedule, Schedules};
use execution::queue::JobQueue;
use execution::signer::Signer;
use execution::wallet::{NewWallet, WalletRole, WalletStatus, Wallets};
use execution::worker::WorkerConfig;
use service::Service as _;
use sqlx::PgPool;
use testkit::Mining;
use types::{
    AssetSymbol, Backoff, ChainName, Decimals, JobId, Priority, RawAmount, WalletGroupId, WithdrawalId,
};
use worker::{Checkpoints, Tick as _};

use super::chain::{self, ETHER};
use super::signer::{FakeSigner, KEYS};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) pool: PgPool,
    pub(crate) anvil: testkit::Chain,
    pub(crate) signer: FakeSigner,
    pub(crate) chains: Chains,
    pub(crate) catalogue: Catalogue,
    pub(crate) wallets: Wallets,
    pub(crate) jobs: Jobs,
    pub(crate) edge: Signer,
    pub(crate) config: Arc<WorkerConfig>,
    pub(crate) group: WalletGroupId,
    _database: testkit::Database,
}

pub(crate) fn bsc() -> ChainName {
    "bsc".parse().unwrap()
}

pub(crate) fn bnb() -> AssetSymbol {
    "BNB".parse().unwrap()
}

pub(crate) fn ether(hundredths: u128) -> RawAmount {
    RawAmount::from(hundredths * ETHER / 100)
}

/// An address that nobody else pays.
pub(crate) fn fresh_address() -> String {
    let bytes: [u8; 20] = std::array::from_fn(|i| uuid::Uuid::new_v4().as_bytes()[i % 16] | 1);
    types::Address::from_body(types::AddressFormat::Evm, bytes).to_string()
}

pub(crate) fn schedule() -> Schedule {
    Schedule {
        tries: Backoff { base: Duration::from_millis(20), cap: None, max_tries: 5 },
        waits: Backoff {
            base: Duration::from_millis(20),
            cap: Some(Duration::from_millis(200)),
            max_tries: u32::MAX,
        },
    }
}

pub(crate) fn worker_config() -> WorkerConfig {
    WorkerConfig {
        batch: 100,
        lease: Duration::from_secs(30),
        concurrency: 1,
        sign_concurrency: 16,
        max_unmined: 1_000,
        resend_after: Duration::from_millis(50),
        balances_every: Duration::from_secs(60),
        halt_on_foreign: true,
        max_lapses: 50,
        max_replacements: 2,
        schedules: Schedules::of(|_, _| schedule()),
    }
}

impl World {
    pub(crate) async fn new(mining: Mining) -> Self {
        Self::with(mining, worker_config(), None).await
    }

    /// `node` is where execution finds the chain; a proxy, for instance.
    pub(crate) async fn with(mining: Mining, config: WorkerConfig, node: Option<&str>) -> Self {
        let anvil = chain::start(mining).await;
        let url = node.map_or_else(|| anvil.url(), str::to_owned);
        Self::on(anvil, config, &url).await
    }

    pub(crate) async fn on(anvil: testkit::Chain, config: WorkerConfig, node: &str) -> Self {
        let database = testkit::postgres().await;
        let pool = db::connect(&db::DatabaseConfig::new(database.url(), "execution-tests")).await.unwrap();
        db::migrate::run(&pool, Execution::migrator().unwrap()).await.unwrap();
        let signer = FakeSigner::default();
        let url = signer.start().await;
        let mut client = rpc::ClientConfig::new(url);
        client.retry.max_attempts = 1;
        let chains = Chains::new(pool.clone(), Duration::from_secs(2), Duration::from_secs(60));
        let jobs_config =
            JobsConfig { schedules: config.schedules.clone(), halt_on_foreign: config.halt_on_foreign };
        let world = Self {
            signer,
            catalogue: Catalogue::new(pool.clone()),
            wallets: Wallets::new(pool.clone(), chains.clone()),
            jobs: Jobs::start(pool.clone(), jobs_config),
            edge: Signer::new(rpc::connect_lazy(&client).unwrap(), Duration::from_millis(700)),
            config: Arc::new(config),
            group: WalletGroupId::new(),
            chains,
            anvil,
            pool,
            _database: database,
        };
        world.put_chain(node, true).await;
        world
    }

    pub(crate) async fn put_chain(&self, node: &str, dynamic_fees: bool) {
        let chain = Chain {
            name: bsc(),
            kind: types::AddressFormat::Evm,
            network_id: 56,
            nodes: vec![node.to_owned()],
            finality: Finality::Depth(2),
            dynamic_fees,
            max_gas_price: RawAmount::from(500_000_000_000u64),
            max_fee: RawAmount::from(ETHER),
            bump_after_seconds: 30,
            enabled: true,
            native_asset: bnb(),
            revision: 0,
        };
        self.catalogue.put_chain(chain).await.unwrap();
        self.catalogue.put_asset(self.asset("BNB", "")).await.unwrap();
        self.chains.reload().await.unwrap();
    }

    pub(crate) fn asset(&self, symbol: &str, contract: &str) -> NewAsset {
        NewAsset {
            chain: bsc(),
            symbol: symbol.parse().unwrap(),
            is_native: contract.is_empty(),
            contract_address: contract.to_owned(),
            decimals: Decimals::new(if contract.is_empty() { 18 } else { 6 }).unwrap(),
            enabled: true,
            min_withdrawal: RawAmount::ZERO,
        }
    }

    /// Registers the wallet of key `index` and reads what it holds.
    pub(crate) async fn hot_wallet(&self, index: u32) -> execution::wallet::OperationWallet {
        let wallet = NewWallet {
            chain: bsc(),
            address: KEYS[index as usize].1.to_owned(),
            role: WalletRole::Hot,
            status: WalletStatus::Active,
            key: Some((self.group, index)),
            label: format!("hot {index}"),
        };
        let stored = self.wallets.put(wallet).await.unwrap();
        self.wallets.refresh(&bsc(), &[]).await.unwrap();
        stored
    }

    pub(crate) fn withdrawal(&self, to: &str, amount: RawAmount) -> NewWithdrawal {
        NewWithdrawal {
            id: WithdrawalId::new(),
            chain: bsc(),
            asset: bnb(),
            amount,
            destination: to.to_owned(),
            priority: Priority::Normal,
            requested_by: "alice".to_owned(),
            on_behalf_of: String::new(),
            approvals: vec![Approval {
                approver: "bob".to_owned(),
                signature: "00ff".to_owned(),
                expires_at: chrono::Utc::now() + chrono::TimeDelta::days(1),
            }],
            trace: telemetry::TraceContext::default(),
        }
    }

    /// Enqueues one payment of 0.01 to a fresh address.
    pub(crate) async fn pay_somebody(&self) -> (JobId, String) {
        let to = fresh_address();
        let job = self.jobs.enqueue(self.withdrawal(&to, ether(1))).await.unwrap();
        (job, to)
    }

    pub(crate) fn worker(&self) -> QueueWorker {
        self.worker_with(Arc::clone(&self.config))
    }

    pub(crate) fn worker_with(&self, config: Arc<WorkerConfig>) -> QueueWorker {
        let (chains, jobs, signer) = (self.chains.clone(), self.jobs.clone(), self.edge.clone());
        let edges = Edges { chains, jobs, signer };
        QueueWorker::new(JobQueue::WITHDRAWAL, bsc(), "test", edges, config).unwrap()
    }

    /// Ticks until the job has the status.
    pub(crate) async fn work_until(&self, job: JobId, status: &str) -> Job {
        let mut worker = self.worker();
        let mut patience = testkit::Patience::of(LIMIT);
        loop {
            worker.tick().await.unwrap();
            let (now, _) = self.jobs.get(job).await.unwrap();
            if now.state.name() == status {
                return now;
            }
            assert!(!patience.is_over(), "job never became {status}: {now:#?}");
            tokio::task::yield_now().await;
        }
    }

    /// Lets a worker run until it stands still at a checkpoint, and drops it there, as a crash would.
    pub(crate) async fn crash_at(&self, checkpoint: &'static str, config: WorkerConfig) {
        let checkpoints = Checkpoints::halting_at(checkpoint);
        let mut worker = self.worker_with(Arc::new(config)).with_checkpoints(checkpoints.clone());
        let running = tokio::spawn(async move {
            loop {
                worker.tick().await.unwrap();
            }
        });
        tokio::time::timeout(LIMIT, checkpoints.reached()).await.expect("the checkpoint is never reached");
        running.abort();
        let _ = running.await;
    }

    pub(crate) async fn job(&self, id: JobId) -> (Job, Vec<Attempt>) {
        self.jobs.get(id).await.unwrap()
    }

    /// Messages waiting to be delivered, by topic.
    pub(crate) async fn messages(&self, topic: &str) -> Vec<Vec<u8>> {
        sqlx::query_scalar("SELECT payload FROM outbox WHERE topic = $1 ORDER BY id")
            .bind(topic)
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }
}
