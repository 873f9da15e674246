//! A chain with a fee collector, a database, an indexer for both, and a reader of both that shares no code with the indexer.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use futures::TryStreamExt as _;
use indexer::Indexer;
use mongodb::bson::{Bson, Document, doc};
use proto::indexer::v1 as pb;
use proto::indexer::v1::indexer_service_client::IndexerServiceClient;
use rpc::{Client, ClientConfig, Secret, connect_lazy};
use serde_json::{Value, json};
use service::Running;
use testkit::{AnvilOptions, Chain, Mining, MongoDatabase, wait_for_value};

pub(crate) const KEY: &str = "bk_test";
pub(crate) const CHAIN_ID: u64 = 137;
pub(crate) const LONG: Duration = Duration::from_secs(90);
pub(crate) const FEES: &str = "fees";
pub(crate) const TRANSFER: &str = "Transfer(address indexed from, address indexed to, uint256 value)";
const COLLECTOR: &str = include_str!("../../../../tests/contracts/artifacts/FeeCollector.json");
const TOKEN: &str = include_str!("../../../../tests/contracts/artifacts/Token.json");
/// `FeesCollected(address,address,uint256,uint256)`
const FEES_TOPIC: &str = "0x28a87b6059180e46de5fb9ab35eb043e8fe00ab45afcc7789e3934ecbbcde3ea";

/// An event as both the chain and the store have it.
pub(crate) type Fact = (u64, String, String, u64, String);

/// A chain that mines on request, with a fee collector.
pub(crate) struct World {
    pub(crate) chain: Chain,
    pub(crate) account: String,
    pub(crate) contract: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::of(CHAIN_ID).await
    }

    /// A chain of this many blocks, and a database.
    pub(crate) async fn with_history(blocks: u64) -> (Self, MongoDatabase) {
        let (world, database) = (Self::new().await, testkit::mongo().await);
        world.history(blocks).await;
        (world, database)
    }

    pub(crate) async fn of(chain_id: u64) -> Self {
        let options = AnvilOptions {
            chain_id,
            mining: Mining::Manual,
            extra_args: ["--gas-limit", "300000000"].map(str::to_owned).to_vec(),
            ..AnvilOptions::default()
        };
        let chain = testkit::anvil(options).await;
        let account = chain.call("eth_accounts", json!([])).await[0].as_str().unwrap().to_owned();
        let mut world = Self { chain, account, contract: String::new() };
        world.contract = world.collector().await;
        world
    }

    /// Another fee collector.
    pub(crate) async fn collector(&self) -> String {
        self.deploy(COLLECTOR, "").await
    }

    pub(crate) async fn deploy(&self, artifact: &str, arguments: &str) -> String {
        let artifact: Value = serde_json::from_str(artifact).unwrap();
        let code = artifact["bytecode"].as_str().unwrap().trim_start_matches("0x");
        let receipt = self.mined(json!({ "data": format!("0x{code}{arguments}"), "gas": "0x4c4b40" })).await;
        receipt["contractAddress"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn token(&self) -> String {
        let word = |text: &str| {
            let mut hex = String::new();
            for byte in text.bytes() {
                write!(hex, "{byte:02x}").unwrap();
            }
            format!("{:064x}{hex:0<64}", text.len())
        };
        let arguments = format!("{:064x}{:064x}{}{}", 0x40, 0x80, word("Token"), word("TKN"));
        self.deploy(TOKEN, &arguments).await
    }

    /// Sends without mining.
    pub(crate) async fn send(&self, mut transaction: Value) -> String {
        transaction["from"] = json!(self.account);
        self.chain.call("eth_sendTransaction", json!([transaction])).await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn mined(&self, transaction: Value) -> Value {
        let hash = self.send(transaction).await;
        self.chain.mine(1).await;
        let receipt = self.chain.call("eth_getTransactionReceipt", json!([hash])).await;
        assert_eq!(receipt["status"], "0x1", "{receipt}");
        receipt
    }

    /// One block with a transaction that emits `count` fee events.
    pub(crate) async fn emit(&self, count: u64) {
        self.send(self.emission(count)).await;
        self.chain.mine(1).await;
    }

    /// A transaction that emits `count` fee events.
    pub(crate) fn emission(&self, count: u64) -> Value {
        let (token, integrator) = (format!("{:064x}", 0xaaaa), format!("{:064x}", 0xbbbb));
        // collectMany(address,address,uint256)
        let data =
            format!("0x{}{token}{integrator}{count:064x}", selector("collectMany(address,address,uint256)"));
        let gas = 100_000 + count * 3_000;
        json!({ "from": self.account, "to": self.contract, "data": data, "gas": format!("{gas:#x}") })
    }

    /// Blocks with events and some without, so that there are ranges of both kinds.
    pub(crate) async fn history(&self, blocks: u64) {
        for block in 0..blocks {
            if block % 3 == 2 {
                self.chain.mine(1).await;
            } else {
                self.emit(block % 7 + 1).await;
            }
        }
    }

    pub(crate) async fn head(&self) -> u64 {
        number(&self.chain.call("eth_blockNumber", json!([])).await)
    }

    /// Every fee event of the chain, read block by block from receipts.
    pub(crate) async fn facts(&self) -> BTreeSet<Fact> {
        let mut facts = BTreeSet::new();
        for block in 0..=self.head().await {
            let receipts = self.chain.call("eth_getBlockReceipts", json!([format!("{block:#x}")])).await;
            let logs =
                receipts.as_array().unwrap().iter().flat_map(|receipt| receipt["logs"].as_array().unwrap());
            for log in logs {
                if log["topics"][0] != FEES_TOPIC || log["address"] != json!(self.contract.to_lowercase()) {
                    continue;
                }
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let data = log["data"].as_str().unwrap().trim_start_matches("0x");
                let fee = u128::from_str_radix(&data[..64], 16).unwrap().to_string();
                facts.insert((
                    number(&log["blockNumber"]),
                    text(&log["blockHash"]),
                    text(&log["transactionHash"]),
                    number(&log["logIndex"]),
                    fee,
                ));
            }
        }
        facts
    }

    /// The settings of an indexer over this chain.
    pub(crate) fn settings(&self, database: &MongoDatabase) -> Settings {
        let (nodes, contract) = (vec![self.chain.url()], self.contract.clone());
        Settings { nodes, contract, sources: true, ..Settings::new(database.url(), database.name()) }
    }

    /// Waits until the stored set equals the chain's.
    pub(crate) async fn stored_in_full(&self, database: &mongodb::Database) {
        testkit::wait_for("the stored set to equal the chain's", LONG, || async {
            stored_in(database).await == self.facts().await
        })
        .await;
    }

    /// Replaces the last `depth` blocks; some of the new ones hold events, by count and place.
    pub(crate) async fn reorganise(&self, depth: u64, with: &[(u64, u64)]) {
        let transactions: Vec<_> =
            with.iter().map(|(count, block)| json!([self.emission(*count), block])).collect();
        self.chain.call("anvil_reorg", json!([depth, transactions])).await;
    }

    /// The stored set must equal the chain's.
    pub(crate) async fn assert_stored(&self, database: &MongoDatabase) {
        self.assert_stored_in(&database.database().await).await;
    }

    pub(crate) async fn assert_stored_in(&self, database: &mongodb::Database) {
        let (stored, facts) = (stored_in(database).await, self.facts().await);
        let missing: Vec<_> = facts.difference(&stored).take(5).collect();
        let extra: Vec<_> = stored.difference(&facts).take(5).collect();
        assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, extra {extra:?}");
        assert!(!facts.is_empty(), "a test without events proves nothing");
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

pub(crate) fn selector(signature: &str) -> String {
    let hash = alloy_primitives::keccak256(signature);
    hash[..4].iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// The contents of `feeEvents`, read without the indexer's code.
pub(crate) async fn stored(database: &MongoDatabase) -> BTreeSet<Fact> {
    stored_in(&database.database().await).await
}

pub(crate) async fn stored_in(database: &mongodb::Database) -> BTreeSet<Fact> {
    let rows = database.collection::<Document>("feeEvents").find(doc! {}).await.unwrap();
    let rows: Vec<Document> = rows.try_collect().await.unwrap();
    let fact = |row: &Document| {
        let Some(Bson::Binary(id)) = row.get("_id") else { panic!("{row}") };
        let hash = id.bytes[16..48].iter().fold("0x".to_owned(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        (
            u64::try_from(row.get_i64("blockNumber").unwrap()).unwrap(),
            hash,
            row.get_str("transactionHash").unwrap().to_owned(),
            u64::try_from(row.get_i64("logIndex").unwrap()).unwrap(),
            row.get_str("integratorFee").unwrap().to_owned(),
        )
    };
    let set: BTreeSet<Fact> = rows.iter().map(fact).collect();
    assert_eq!(set.len(), rows.len(), "an event is stored twice");
    set
}

/// Makes the server record every statement against a collection, until [`statements`] is called.
pub(crate) async fn profile(database: &mongodb::Database, collection: &str) {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    database.collection::<Document>("system.profile").drop().await.unwrap();
    let only = doc! { "ns": format!("{}.{collection}", database.name()) };
    database.run_command(doc! { "profile": 1, "filter": only }).await.unwrap();
}

/// The statements since [`profile`], oldest first.
pub(crate) async fn statements(database: &mongodb::Database) -> Vec<Document> {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    profile.find(doc! {}).sort(doc! { "$natural": 1 }).await.unwrap().try_collect().await.unwrap()
}

/// A number of a statement, whatever its type; 0 when it is missing.
pub(crate) fn counted(statements: &[Document], field: &str) -> i64 {
    let number = |statement: &Document| match statement.get(field) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    };
    statements.iter().map(number).sum()
}

/// A source on the chain of the tests.
pub(crate) fn source(name: &str, contract: &str, nodes: Vec<String>) -> pb::Source {
    pb::Source {
        name: name.to_owned(),
        chain_id: CHAIN_ID,
        contract_address: contract.to_owned(),
        nodes,
        ..Default::default()
    }
}

/// The parts of a configuration that tests vary.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) database: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) contract: String,
    pub(crate) batch: u64,
    pub(crate) concurrency: u64,
    pub(crate) lease_ms: u64,
    pub(crate) finality: u64,
    pub(crate) node_timeout_ms: u64,
    /// More lines for `[collect]`.
    pub(crate) extra: String,
    /// Whether the fee source is part of the configuration.
    pub(crate) sources: bool,
}

impl Settings {
    /// Without a source.
    pub(crate) fn new(url: &str, database: &str) -> Self {
        Self {
            url: url.to_owned(),
            database: database.to_owned(),
            nodes: Vec::new(),
            contract: String::new(),
            batch: 10,
            concurrency: 2,
            lease_ms: 5_000,
            finality: 30,
            node_timeout_ms: 2_000,
            extra: String::new(),
            sources: false,
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self { url, database, batch, concurrency, lease_ms, finality, extra, contract, .. } = self;
        let node_timeout_ms = self.node_timeout_ms;
        let hash = rpc::auth::hash_key(KEY);
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("\"{node}\"")).collect();
        let mut text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[server.health]\ninterval_ms = 50\ntimeout_ms = 1000\n\
             [server.limits]\ndrain_ms = 2000\n\
             [[auth.keys]]\nname = \"operator\"\nsha256 = \"{hash}\"\nroles = [\"operator\"]\n\
             [mongo]\nurl = \"{url}\"\ndatabase = \"{database}\"\ntimeout_ms = 2000\n\
             [collect]\nbatch_size = {batch}\nconcurrency = {concurrency}\nlease_ms = {lease_ms}\n\
             finality_blocks = {finality}\nhistorical_poll_ms = 50\nrealtime_poll_ms = 50\n\
             node_timeout_ms = {node_timeout_ms}\n{extra}\n"
        );
        if self.sources {
            write!(
                text,
                "[[sources]]\nname = \"{FEES}\"\nchain_id = {CHAIN_ID}\ncontract_address = \"{contract}\"\n\
                 start_block = 0\nnodes = [{}]\n",
                nodes.join(", ")
            )
            .unwrap();
        }
        text
    }

    pub(crate) async fn launch(&self) -> Indexing {
        let running = service::launch::<Indexer>(&self.text()).await;
        Indexing { running: running.unwrap_or_else(|error| panic!("{}", error.message())) }
    }
}

/// An indexer in this process.
pub(crate) struct Indexing {
    pub(crate) running: Running<Indexer>,
}

impl Indexing {
    pub(crate) fn client(&self) -> IndexerServiceClient<Client> {
        let config = ClientConfig::new(self.running.url()).with_key(Secret::new(KEY));
        IndexerServiceClient::new(connect_lazy(&config).unwrap())
    }

    pub(crate) async fn progress(&self, source: &str) -> Option<pb::Progress> {
        let request = pb::GetProgressRequest { source: source.to_owned() };
        self.client().get_progress(request).await.ok()?.into_inner().sources.into_iter().next()
    }

    /// Waits until the source is complete to this block.
    pub(crate) async fn complete_to(&self, source: &str, block: u64) -> pb::Progress {
        let what = format!("{source} to be complete to block {block}");
        wait_for_value(&what, LONG, || async {
            self.progress(source).await.filter(|progress| progress.complete_to_block >= block)
        })
        .await
    }

    /// Waits until the fee source is complete to the head.
    pub(crate) async fn caught_up(&self, world: &World) -> pb::Progress {
        self.complete_to(FEES, world.head().await).await
    }

    /// Catches up, compares what is stored with the chain, and stops.
    pub(crate) async fn finish(self, world: &World, database: &MongoDatabase) {
        self.caught_up(world).await;
        world.assert_stored(database).await;
        self.stop().await;
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("{}{path}", self.running.url())).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub(crate) async fn fees(&self, query: &str) -> Value {
        let (status, body) = self.get(&format!("/fees{query}")).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.unwrap();
    }
}
