//! Transactions that expire: void needs every node's solid blocks, and who cannot show them is named.

use std::time::Duration;

use chrono::DateTime;
use confirmation::chains::{ChainApp, Settings};
use confirmation::config::Follow;
use confirmation::watch::app::PutWatch;
use confirmation::watch::verdict::AttestationKey;
use confirmation::watch::{NewTx, WatchApp};
use confirmation::worker::{ChainLoop, Parts, build_edge};
use payment::{AssetRef, Transfer};
use prost::Message as _;
use proto::execution::v1::verdict::Finding;
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::Database;
use tron_devnet::{Config, Devnet};
use types::{Address, AddressFormat, ChainName, JobId, TxHash};

use crate::desk::{SEED, is_attested, tick, tick_until};

const NODES: usize = 2;
/// What becomes solid is this far below the newest block.
const SOLID_LAG: u64 = 3;

/// A network whose blocks come by hand, and a database.
struct Net {
    devnet: Devnet,
    http: reqwest::Client,
    _db: Database,
    pool: PgPool,
    watches: WatchApp,
    settings: Settings,
}

fn name() -> ChainName {
    "tron".parse().unwrap()
}

fn address(byte: u8) -> Address {
    Address::from_body(AddressFormat::Tron, [byte; 20])
}

impl Net {
    async fn start() -> Self {
        let arguments = [
            "tron-devnet".to_owned(),
            "--manual".to_owned(),
            format!("--nodes={NODES}"),
            format!("--solid-lag={SOLID_LAG}"),
        ];
        let devnet = Devnet::start(<Config as clap::Parser>::parse_from(arguments)).await.unwrap();
        let http = reqwest::Client::new();
        let first = post(&http, &devnet, "wallet/getblock", json!({ "id_or_num": "0" })).await;
        let id = first["blockID"].as_str().unwrap();
        let db = testkit::postgres().await;
        let pool = db.pool().await;
        db::migrate::run(&pool, &confirmation::MIGRATOR).await.unwrap();
        let settings = Settings {
            name: name(),
            kind: AddressFormat::Tron,
            network_id: u64::from_str_radix(&id[id.len() - 8..], 16).unwrap(),
            nodes: (0..NODES).map(|node| devnet.url(node)).collect(),
            depth: 0,
            stuck_after: None,
            revision: 1,
        };
        ChainApp::new(pool.clone()).put(&settings).await.unwrap();
        let watches = WatchApp::new(pool.clone());
        let net = Self { devnet, http, _db: db, pool, watches, settings };
        net.produce(10).await;
        net
    }

    async fn admin(&self, call: &str, body: Value) -> Value {
        post(&self.http, &self.devnet, &format!("admin/{call}"), body).await
    }

    async fn produce(&self, blocks: u64) {
        self.admin("produce", json!({ "blocks": blocks })).await;
    }

    fn replica(&self, lease: Duration) -> ChainLoop {
        let follow = Follow { lease, void_check: Duration::ZERO, retry: Duration::ZERO, ..Follow::default() };
        let edge = build_edge(&self.settings, Duration::from_secs(5)).unwrap();
        let key = AttestationKey::from_seed(&SEED);
        let parts = Parts { pool: self.pool.clone(), key, follow, owner: "one".to_owned() };
        ChainLoop::new(parts, self.settings.clone(), edge)
    }

    /// Watches a transaction that nobody ever sent, whose window closes soon.
    async fn watch(&self, hash: TxHash) -> JobId {
        let (job, state) = (JobId::new(), self.admin_state().await);
        let head = post(&self.http, &self.devnet, "wallet/getnowblock", json!({})).await;
        let now_ms = head["block_header"]["raw_data"]["timestamp"].as_i64().unwrap();
        let effect =
            Transfer { asset: AssetRef::Native, from: address(1), to: address(2), amount: 5u64.into() };
        let signed = NewTx {
            hash,
            is_cancellation: false,
            nonce: None,
            expires_at: DateTime::from_timestamp_millis(now_ms + 30_000),
            reference_block: state["solid"].as_u64().unwrap(),
            proven: true,
        };
        let put = PutWatch { job, withdrawal: None, chain: name(), effect, transactions: vec![signed] };
        self.watches.put(put).await.unwrap();
        job
    }

    async fn admin_state(&self) -> Value {
        let url = format!("{}/admin/state", self.devnet.url(0));
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    async fn delayed(&self, job: JobId) -> String {
        self.watches.get(job).await.unwrap().delayed_reason
    }

    async fn status(&self, job: JobId) -> &'static str {
        self.watches.get(job).await.unwrap().watch.status()
    }

    async fn verdict(&self, job: JobId) -> Finding {
        let payload: Vec<u8> = sqlx::query_scalar("SELECT payload FROM verdicts WHERE job_id = $1")
            .bind(job.as_uuid())
            .fetch_one(&self.pool)
            .await
            .unwrap();
        proto::execution::v1::Verdict::decode(payload.as_slice()).unwrap().finding.unwrap()
    }
}

async fn post(http: &reqwest::Client, devnet: &Devnet, path: &str, body: Value) -> Value {
    let answer = http.post(format!("{}/{path}", devnet.url(0))).json(&body).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_window_that_closed_without_it_is_void_and_signed_for() {
    let net = Net::start().await;
    let mut replica = net.replica(Duration::from_secs(20));
    let hash = TxHash([7; 32]);
    let job = net.watch(hash).await;
    // The expiration is behind the newest block, and not yet behind a solid one.
    net.produce(10 + SOLID_LAG - 1).await;
    tick(&mut replica).await;
    assert_eq!(net.status(job).await, "waiting");
    net.produce(1).await;
    tick(&mut replica).await;
    assert_eq!(net.status(job).await, "void");
    let Finding::Void(void) = net.verdict(job).await else { panic!("another verdict") };
    assert_eq!((void.foreign_tx_hash.as_str(), void.tx_hashes), ("", vec![hash.to_string()]));
    assert!(is_attested(job, &[hash], &void.attestation, void.attested_at));
}

#[tokio::test]
async fn whichever_node_cannot_show_the_window_is_named_and_nothing_is_void() {
    let net = Net::start().await;
    let mut replica = net.replica(Duration::from_secs(20));
    let job = net.watch(TxHash([8; 32])).await;
    net.produce(40).await;
    for node in 0..NODES {
        for (change, back) in [
            (json!({ "node": node, "history_blocks": 3 }), json!({ "node": node, "history_blocks": 0 })),
            (json!({ "node": node, "lite": true }), json!({ "node": node, "lite": false })),
        ] {
            net.admin("node", change.clone()).await;
            tick(&mut replica).await;
            assert_eq!(net.status(job).await, "waiting", "{change}");
            let (told, name) = (net.delayed(job).await, net.devnet.url(node));
            assert!(told.contains(&name), "{change}: {told:?} does not name {name}");
            net.admin("node", back).await;
            sqlx::query("UPDATE watches SET delayed_reason = ''").execute(&net.pool).await.unwrap();
        }
    }
    tick(&mut replica).await;
    assert_eq!(net.status(job).await, "void");
}

#[tokio::test]
async fn nodes_slower_than_the_lease_delay_a_verdict_and_do_not_prevent_it() {
    let net = Net::start().await;
    let job = net.watch(TxHash([9; 32])).await;
    net.produce(40).await;
    net.admin(
        "fault",
        json!({ "kind": "slow", "path": "getblockbylimitnext", "times": 0, "delay_ms": 1_000 }),
    )
    .await;
    let mut replica = net.replica(Duration::from_millis(600));
    tick_until("the verdict", &mut replica, async || net.status(job).await == "void").await;
}
