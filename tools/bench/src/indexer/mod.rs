//! Events from a node into MongoDB: ours against a hand-tuned loop on the same servers and against ponder on the same chain;
//! then the same events again, pages at depth, and memory over millions.
//!
//! Every run is checked by the number of events and a checksum over each one's place and amount; a run that fails the check
//! has no figure.

mod chain;
mod hand;
mod ours;
mod ponder;
mod synthetic;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use devstack::{Lifetime, Mongo, MongoOptions, Tools};
use futures::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use proto::indexer::v1 as pb;

use crate::Mode;
use crate::memory::resident;
use crate::server::Server;
use crate::table::{Goal, Row, Unit, median};

/// Blocks asked for at once, and how many such questions are in flight: what the loop by hand likes best.
const BATCH: u64 = 10;
const IN_FLIGHT: u64 = 3;
const MEMORY_LIMIT_MIB: f64 = 192.0;
/// How much more memory may be in use after everything than after a tenth of it: nothing grows with the number of events.
const MEMORY_GROWTH: f64 = 1.2;
const PAGES: usize = 200;

/// What a range of the chain holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    events: u64,
    /// Over every event: 31 x block + 7 x log index + fee.
    checksum: u64,
}

impl Expected {
    fn nothing() -> Self {
        Self { events: 0, checksum: 0 }
    }

    fn add(&mut self, block: u64, log: u64, fee: u64) {
        self.events += 1;
        self.checksum = self.checksum.wrapping_add(31 * block + 7 * log + fee);
    }
}

fn source(name: &str, contract: &str, node: String) -> pb::Source {
    pb::Source {
        name: name.to_owned(),
        chain_id: chain::CHAIN_ID,
        contract_address: contract.to_owned(),
        batch_size: u32::try_from(BATCH).unwrap_or(10),
        concurrency: u32::try_from(IN_FLIGHT).unwrap_or(3),
        nodes: vec![node],
        ..Default::default()
    }
}

/// The rows of the node-to-store race: needs anvil, MongoDB and, for ponder, PostgreSQL and npm.
pub(crate) async fn rows(tools: &Tools, dir: &Path, mode: Mode) -> Result<Vec<Row>> {
    let chain = chain::EventChain::start(tools, dir, mode.pick(50, 600)).await?;
    let mut mongo = server(tools, dir).await?;
    let (mut raw, mut our, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..mode.rounds() {
        let database = format!("hand_{round}");
        raw.push(hand::rate(&mongo.url(), &database, &chain).await?);
        check(&mongo.url(), &database, chain.expected).await.context("the loop by hand")?;
        forget(&mongo.url(), &database).await?;
        let database = format!("ours_{round}");
        let indexer = ours::Indexer::start(dir, &mongo.url(), &database, &chain.source()).await?;
        our.push(indexer.rate(chain.head, chain.expected.events).await?);
        check(&mongo.url(), &database, chain.expected).await.context("ours")?;
        again.push(indexer.replay(chain.expected.events).await?);
        check(&mongo.url(), &database, chain.expected).await.context("ours, replayed")?;
        indexer.stop().await?;
        forget(&mongo.url(), &database).await?;
    }
    let mut row = Row::new("logs: node, decode, store", Unit::PerSecond).ours(median(&our)).raw(median(&raw));
    row = row.goal(Goal::OfRaw(0.8)).goal(Goal::OfPeer(6.0));
    match Box::pin(peer(tools, dir, &chain)).await {
        Ok(rate) => row = row.peer("ponder", rate),
        Err(error) => eprintln!("    without ponder: {error:#}"),
    }
    let replay = Row::new("logs: a finished range again", Unit::PerSecond).ours(median(&again));
    mongo.stop().await?;
    Ok(vec![row, replay.goal(Goal::AtLeast(20_000.0))])
}

/// The rows over many millions of events, which a node made for the purpose gives without ever having had them.
pub(crate) async fn at_depth(tools: &Tools, dir: &Path, mode: Mode) -> Result<Vec<Row>> {
    let node = synthetic::SyntheticNode::start(mode.pick(100, 10_000)).await?;
    let mut mongo = server(tools, dir).await?;
    let database = "many";
    let indexer = ours::Indexer::start(dir, &mongo.url(), database, &node.source()).await?;
    indexer.until(node.blocks / 10).await?;
    let early = resident(indexer.pid())?;
    let began = Instant::now();
    indexer.until(node.blocks - 1).await?;
    eprintln!("    the rest of {} events took {:.0} s", node.expected.events, began.elapsed().as_secs_f64());
    let late = resident(indexer.pid())?;
    check(&mongo.url(), database, node.expected).await?;
    indexer.until_indexed().await?;
    let millions = format!("{:.1}", node.expected.events as f64 / 1e6);
    let pages = indexer.page_times(node.blocks, PAGES).await?;
    let numbered = indexer.numbered_page_times(node.expected.events, PAGES).await?;
    indexer.stop().await?;
    mongo.stop().await?;
    let ms = |what: String, times: &[f64]| Row::new(what, Unit::Milliseconds).ours(median(times));
    Ok(vec![
        ms(format!("a page of 100 by token, {millions} M stored, any depth"), &pages).goal(Goal::Below(5.0)),
        ms(format!("a page of 100 by number over HTTP, {millions} M stored"), &numbered),
        Row::new(
            format!("memory of the indexer after {millions} M events (beside it: after a tenth)"),
            Unit::Mebibytes,
        )
        .ours(late)
        .raw(early)
        .goal(Goal::AtMostRaw(MEMORY_GROWTH))
        .goal(Goal::Below(MEMORY_LIMIT_MIB)),
    ])
}

async fn server(tools: &Tools, dir: &Path) -> Result<Mongo> {
    let own = dir.join("mongodb");
    // A server that ran here before has been stopped; its data would slow this one down.
    std::fs::remove_dir_all(&own).ok();
    let lifetime = Lifetime::OwnedWithDirectory(own.clone());
    Ok(Mongo::start(tools, &MongoOptions { dir: own, lifetime, ..MongoOptions::default() }).await?)
}

async fn peer(tools: &Tools, dir: &Path, chain: &chain::EventChain) -> Result<f64> {
    let prefix = ponder::install().await?;
    let dir = dir.join("ponder");
    std::fs::create_dir_all(&dir)?;
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let mut server = Server::start(tools, &dir).await?;
    let url = server.database("ponder").await?;
    let rate = ponder::rate(&prefix, &url, chain).await;
    server.stop().await?;
    rate
}

async fn forget(url: &str, database: &str) -> Result<()> {
    Ok(mongodb::Client::with_uri_str(url).await?.database(database).drop().await?)
}

async fn check(url: &str, database: &str, expected: Expected) -> Result<()> {
    let client = mongodb::Client::with_uri_str(url).await?;
    let rows = client.database(database).collection::<Document>("feeEvents");
    let fields = doc! { "blockNumber": 1, "logIndex": 1, "integratorFee": 1 };
    let mut rows = rows.find(doc! {}).projection(fields).batch_size(20_000).await?;
    let mut found = Expected::nothing();
    while let Some(row) = rows.try_next().await? {
        let number = |field: &str| anyhow::Ok(u64::try_from(row.get_i64(field)?)?);
        found.add(number("blockNumber")?, number("logIndex")?, row.get_str("integratorFee")?.parse()?);
    }
    ensure!(found == expected, "stored {found:?}, the chain holds {expected:?}");
    Ok(())
}
