//! The development TRON network as a test sees it: faults by its admin calls, and its oracle as the judge of payments.
//!
//! Shares no code with the services it judges: what was paid is read from the oracle, which counts what truly moved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use proto::execution::v1 as ex;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1 as pb;
use serde_json::{Value, json};
use testkit::Patience;
use types::Address;

use crate::judge::{jobs, unbroken};
use crate::payments::{Customer, Ordered, again};
use crate::stack::Stack;

/// The paths below which the two nodes of the development network answer.
pub const NODES: usize = 2;

/// The network, spoken to directly.
#[derive(Debug, Clone)]
pub struct Devnet {
    url: String,
    http: reqwest::Client,
}

/// Value that moved on the winning branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub txid: String,
    pub token: String,
    pub amount: String,
    pub from: String,
    pub solid: bool,
}

impl Devnet {
    pub fn of(stack: &Stack) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        Ok(Self { url: stack.part("tron")?.url, http })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// One call of the admin API.
    pub async fn admin(&self, call: &str, body: Value) -> Result<Value> {
        let answer = self.http.post(format!("{}/admin/{call}", self.url)).json(&body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "admin/{call}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// One call of the first node, as its wallet has it.
    pub async fn wallet(&self, call: &str, body: Value) -> Result<Value> {
        let answer = self.http.post(format!("{}/wallet/{call}", self.url)).json(&body).send().await?;
        Ok(answer.json().await?)
    }

    /// Has calls whose names begin with `path` meet this fault; on every node, or on one.
    pub async fn fault(&self, node: Option<usize>, kind: &str, path: &str, times: u32) -> Result<()> {
        let mut order = json!({ "kind": kind, "path": path, "times": times, "delay_ms": 4_000 });
        if let Some(node) = node {
            order["node"] = node.into();
        }
        self.admin("fault", order).await.map(drop)
    }

    /// Takes back everything a test may have done to the nodes, the producers and the prices.
    pub async fn heal(&self, token: &str) -> Result<()> {
        self.admin("faults/clear", json!({})).await?;
        self.admin("mining", json!({ "include": true })).await?;
        for node in 0..NODES {
            let well = json!({
                "node": node, "lag": 0, "lite": false, "history_blocks": 0, "busy": false, "connected": true,
                "isolated": false, "branch": false, "seen_cache": false,
            });
            self.admin("node", well).await?;
        }
        self.admin("prices", json!({ "energy_fee_sun": 100, "bandwidth_fee_sun": 1_000 })).await?;
        self.admin("behaviour", json!({ "token": token, "behaviour": "normal" })).await.map(drop)
    }

    pub async fn state(&self) -> Result<Value> {
        Ok(self.http.get(format!("{}/admin/state", self.url)).send().await?.json().await?)
    }

    /// Waits until so many more blocks are solid.
    pub async fn solidify(&self, blocks: u64) -> Result<()> {
        let solid = async || -> Result<u64> { self.state().await?["solid"].as_u64().context("a number") };
        let wanted = solid().await? + blocks;
        testkit::wait_for("blocks to become solid", Duration::from_secs(60), || async {
            solid().await.is_ok_and(|now| now >= wanted)
        })
        .await;
        Ok(())
    }

    /// Ids of the payments in the newest blocks.
    pub async fn newest(&self, blocks: u64) -> Result<Vec<String>> {
        let head = self.state().await?["head"].as_u64().context("a number")?;
        let since = (head + 1).saturating_sub(blocks);
        let moved = self.moved_since(since).await?;
        Ok(moved.into_values().flatten().map(|one| one.txid).collect())
    }

    /// Everything that ever moved, by receiver.
    pub async fn moved(&self) -> Result<BTreeMap<String, Vec<Moved>>> {
        self.moved_since(0).await
    }

    async fn moved_since(&self, block: u64) -> Result<BTreeMap<String, Vec<Moved>>> {
        let url = format!("{}/admin/payments?since={block}", self.url);
        let answer: Value = self.http.get(url).send().await?.json().await?;
        let mut moved: BTreeMap<String, Vec<Moved>> = BTreeMap::new();
        for payment in answer["payments"].as_array().context("the oracle lists payments")? {
            let text = |field: &str| payment[field].as_str().unwrap_or_default().to_owned();
            moved.entry(text("to")).or_default().push(Moved {
                txid: text("txid"),
                token: text("token"),
                amount: text("amount"),
                from: text("from"),
                solid: payment["solid"] == true,
            });
        }
        Ok(moved)
    }
}

/// The token's contract, as the catalogue has it.
pub async fn token(stack: &Stack) -> Result<String> {
    use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
    let client = CatalogueServiceClient::new(stack.client("execution", "operator")?);
    let listed = again(|| {
        let mut client = client.clone();
        async move { client.list_assets(ex::ListAssetsRequest::default()).await }
    });
    let assets = listed.await?.assets;
    let token = assets.into_iter().find(|asset| asset.chain == "tron" && !asset.is_native);
    Ok(token.context("the catalogue has a token on TRON")?.contract_address)
}

/// Changes settings of a service, given as text in the form of its file.
pub fn tune(config: &Path, settings: &str) -> Result<()> {
    let mut table: toml::Table = std::fs::read_to_string(config)?.parse()?;
    merge(&mut table, settings.parse()?);
    std::fs::write(config, toml::to_string(&table)?)?;
    Ok(())
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match value {
            toml::Value::Table(value) => {
                let inner = into.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                if let toml::Value::Table(inner) = inner {
                    merge(inner, value);
                }
            }
            value => {
                into.insert(key, value);
            }
        }
    }
}

/// What became of a set of payments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub completed: usize,
    pub failed: usize,
    /// Transactions that were signed beyond the first one of their payment.
    pub signed_again: usize,
}

/// Holds what was ordered against what the oracle saw and what the services say: one transfer for each completed payment,
/// none for a failed one, nothing else left our wallets, every transaction on the chain is one that was stored before, and
/// nothing that was ever signed can pay once more. `besides` are destinations whose payments wait for a person.
pub async fn judge(
    stack: &Stack,
    customer: &Customer,
    devnet: &Devnet,
    orders: &[Ordered],
    besides: &[Address],
) -> Result<Tally> {
    let moved = devnet.moved().await?;
    let token = token(stack).await?;
    let mut tally = Tally::default();
    let mut expected: BTreeSet<String> = besides.iter().map(ToString::to_string).collect();
    for order in orders {
        let told = customer.status(&order.id).await?;
        let to = order.destination.to_string();
        let found = moved.get(&to).map(Vec::as_slice).unwrap_or_default();
        let asset = if order.asset == "TRX" { "TRX" } else { token.as_str() };
        match told.status() {
            pb::WithdrawalStatus::Completed => {
                let [paid] = found else { bail!("{} is completed, and the chain shows {found:?}", order.id) };
                ensure!(paid.solid, "{} is completed by {}, which is not solid", order.id, paid.txid);
                let same = (paid.token.as_str(), &paid.amount) == (asset, &order.amount_raw);
                ensure!(same, "{} wanted {} {asset}, the chain shows {paid:?}", order.id, order.amount_raw);
                let named = told.final_tx_hash.trim_start_matches("0x");
                ensure!(named == paid.txid, "{} names {named}, it was paid by {}", order.id, paid.txid);
                tally.completed += 1;
            }
            pb::WithdrawalStatus::Failed => {
                ensure!(found.is_empty(), "{} has failed, and the chain shows {found:?}", order.id);
                tally.failed += 1;
            }
            other => bail!("{} is still {}: {}", order.id, other.as_str_name(), told.blocked_reason),
        }
        expected.insert(to);
    }
    let client = ExecutionServiceClient::new(stack.client("execution", "auditor")?);
    let jobs: Vec<ex::Job> = jobs(&client).await?.into_iter().filter(|job| job.chain == "tron").collect();
    let (mut wallets, mut stored) = (BTreeSet::new(), BTreeSet::new());
    for job in &jobs {
        one_at_a_time(job)?;
        wallets.insert(job.from_address.as_str());
        let hashes = job.attempts.iter().map(|attempt| attempt.tx_hash.trim_start_matches("0x"));
        let hashes: Vec<&str> = hashes.filter(|hash| !hash.is_empty()).collect();
        tally.signed_again += hashes.len().saturating_sub(1);
        stored.extend(hashes);
    }
    for (to, found) in &moved {
        for one in found.iter().filter(|one| wallets.contains(one.from.as_str())) {
            ensure!(expected.contains(to), "{} paid {} {}, which nobody ordered", one.from, to, one.amount);
            let known = stored.contains(one.txid.as_str());
            ensure!(known, "{} is on the chain, and its bytes were never stored", one.txid);
        }
    }
    old_bytes_come_back(devnet, &jobs).await?;
    unbroken(stack).await?;
    Ok(tally)
}

/// Waits until every job on TRON has ended; says which have not. Asks for all of them at once: hundreds of customers asking
/// would slow down what they wait for. Patience begins anew whenever they are others: on a busy machine all of them together may
/// take long, as long as they move.
pub async fn all_ended(stack: &Stack, limit: Duration) -> Result<()> {
    use ex::JobStatus as S;
    let client = ExecutionServiceClient::new(stack.client("execution", "auditor")?);
    let open = async || {
        let request = ex::ListJobsRequest {
            chain: "tron".to_owned(),
            statuses: [S::Pending, S::Processing, S::Confirming, S::Parked].map(i32::from).to_vec(),
            page_size: 500,
            ..Default::default()
        };
        again(|| {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.list_jobs(request).await }
        })
        .await
    };
    let (mut patience, mut left) = (Patience::of(limit), BTreeSet::new());
    let mut pace = tokio::time::interval(Duration::from_millis(300));
    loop {
        pace.tick().await;
        let jobs = open().await?.jobs;
        if jobs.is_empty() {
            return Ok(());
        }
        let ids: BTreeSet<String> = jobs.iter().map(|job| job.id.clone()).collect();
        if ids != left {
            (patience, left) = (Patience::of(limit), ids);
        }
        if patience.is_over() {
            let told = jobs.iter().take(8).map(|job| {
                let status = job.status().as_str_name();
                format!("{} {status} after {} tries: {} {}", job.id, job.tries, job.blocked_reason, job.error)
            });
            bail!("{} jobs have not ended:\n{}", jobs.len(), told.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Whether everything that was signed for a job but the last could never pay any more when the next was signed.
fn one_at_a_time(job: &ex::Job) -> Result<()> {
    use ex::AttemptStatus as S;
    let stored = job.attempts.iter().filter(|attempt| !attempt.tx_hash.is_empty());
    for attempt in stored.rev().skip(1) {
        let dead = matches!(attempt.status(), S::Void | S::Reverted);
        ensure!(dead, "job {} was signed again beside its attempt {}", job.id, attempt.number);
    }
    Ok(())
}

/// Brings all bytes that were ever signed before a node once more, and looks at them as the node reads them: each has the id
/// under which it is stored, none was made before the one it takes the place of had expired in the time of blocks, and none
/// pays again.
async fn old_bytes_come_back(devnet: &Devnet, jobs: &[ex::Job]) -> Result<()> {
    let before = devnet.moved().await?;
    for job in jobs {
        let mut expired_ms = 0;
        for attempt in job.attempts.iter().filter(|attempt| !attempt.tx_hash.is_empty()) {
            let body = json!({ "transaction": hex::encode(&attempt.raw_transaction) });
            let answer = devnet.wallet("broadcasthex", body).await?;
            let id = attempt.tx_hash.trim_start_matches("0x");
            ensure!(answer["txid"] == id, "the bytes of {id} are others: {answer}");
            let read: Value = serde_json::from_str(answer["transaction"].as_str().unwrap_or_default())?;
            let time = |field: &str| read["raw_data"][field].as_i64().context("a transaction has its times");
            let (made_ms, until_ms) = (time("timestamp")?, time("expiration")?);
            ensure!(made_ms >= expired_ms, "{id} was made before what it replaces had expired");
            // What was included and failed needs no time to be dead.
            let is_void = attempt.status() == ex::AttemptStatus::Void;
            expired_ms = if is_void { until_ms } else { 0 };
        }
    }
    devnet.solidify(2).await?;
    let after = devnet.moved().await?;
    ensure!(ids(&before) == ids(&after), "old bytes paid again: {before:?} became {after:?}");
    Ok(())
}

/// What paid each receiver.
fn ids(moved: &BTreeMap<String, Vec<Moved>>) -> BTreeMap<&str, Vec<&str>> {
    let each = moved.iter();
    each.map(|(to, moved)| (to.as_str(), moved.iter().map(|one| one.txid.as_str()).collect())).collect()
}
