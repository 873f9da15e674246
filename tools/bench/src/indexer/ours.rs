//! The real indexer as a process: one `serve`, as anybody would run it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use devstack::{Lifetime, Service, ServiceOptions};
use mongodb::bson::{Document, doc};
use proto::indexer::v1 as pb;
use proto::indexer::v1::indexer_service_client::IndexerServiceClient;
use rand::Rng as _;
use rpc::{Client, ClientConfig, Secret, connect_lazy};

use super::chain::CHAIN_ID;
use crate::programs;

const KEY: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(1_800);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Indexer {
    service: Service,
    mongo: String,
    database: String,
}

impl Indexer {
    pub(super) async fn start(dir: &Path, mongo: &str, database: &str, source: &pb::Source) -> Result<Self> {
        let port = devstack::free_port()?;
        let file = dir.join(format!("{database}.toml"));
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n[telemetry]\nfilter = \"warn\"\n\
             [[auth.keys]]\nname = \"bench\"\nsha256 = \"{}\"\nroles = [\"operator\"]\n\
             [mongo]\nurl = \"{mongo}\"\ndatabase = \"{database}\"\n\
             [collect]\nrealtime_poll_ms = 100\nhistorical_poll_ms = 100\n",
            rpc::auth::hash_key(KEY)
        );
        std::fs::write(&file, text)?;
        let program = programs::find("indexer")?.display().to_string();
        let options = ServiceOptions {
            name: "indexer".to_owned(),
            command: vec![program, "serve".to_owned(), "--config".to_owned(), file.display().to_string()],
            env: [].into(),
            dir: dir.to_owned(),
            log: dir.join(format!("{database}.log")),
            url: format!("http://127.0.0.1:{port}"),
            lifetime: Lifetime::Owned,
            ready_limit: Duration::from_secs(30),
        };
        let service = Service::start(&options).await?;
        let indexer = Self { service, mongo: mongo.to_owned(), database: database.to_owned() };
        let request = pb::AddSourceRequest { source: Some(source.clone()) };
        indexer.client()?.add_source(request).await.context("the indexer does not take the source")?;
        Ok(indexer)
    }

    fn client(&self) -> Result<IndexerServiceClient<Client>> {
        let config = ClientConfig::new(self.service.url()).with_key(Secret::new(KEY));
        Ok(IndexerServiceClient::new(connect_lazy(&config)?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// Waits until everything up to this block is stored.
    pub(super) async fn until(&self, block: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.client()?;
        loop {
            let progress = client.get_progress(pb::GetProgressRequest::default()).await?.into_inner().sources;
            let progress = progress.first().context("no progress")?;
            ensure!(progress.exhausted.is_empty(), "a range failed: {:?}", progress.exhausted);
            if progress.complete_to_block >= block {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "complete to {} of {block} only", progress.complete_to_block);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Events a second, from the first claimed range to the last completed one, by the database's clock.
    pub(super) async fn rate(&self, head: u64, events: u64) -> Result<f64> {
        self.until(head).await?;
        let jobs = self.jobs().await?;
        let time = |job: Option<Document>, field: &str| {
            let job = job.context("no range")?;
            anyhow::Ok(job.get_datetime(field)?.timestamp_millis())
        };
        let with_events = doc! { "count": { "$gt": 0 } };
        let first = time(jobs.find_one(doc! {}).sort(doc! { "createdAt": 1 }).await?, "createdAt")?;
        let last = time(jobs.find_one(with_events).sort(doc! { "updatedAt": -1 }).await?, "updatedAt")?;
        Ok(events as f64 * 1000.0 / (last - first).max(1) as f64)
    }

    /// Events a second when every finished range is read and stored once more.
    pub(super) async fn replay(&self, events: u64) -> Result<f64> {
        let jobs = self.jobs().await?;
        let again = doc! {
            "$set": { "status": "pending", "open": true, "attempts": 0_i64, "reopened": true },
            "$inc": { "fence": 1_i64 },
        };
        let began = Instant::now();
        jobs.update_many(doc! { "status": "completed" }, again).await?;
        let deadline = began + PATIENCE;
        while jobs.count_documents(doc! { "open": true }).await? > 0 {
            ensure!(Instant::now() < deadline, "ranges are left");
            tokio::time::sleep(LOOK).await;
        }
        Ok(events as f64 / began.elapsed().as_secs_f64())
    }

    async fn rows(&self, collection: &str) -> Result<mongodb::Collection<Document>> {
        let client = mongodb::Client::with_uri_str(&self.mongo).await?;
        Ok(client.database(&self.database).collection(collection))
    }

    async fn jobs(&self) -> Result<mongodb::Collection<Document>> {
        self.rows("blockJobs").await
    }

    /// Waits until the indexes for filters are there: they are built once the source has caught up, and take their time.
    pub(super) async fn until_indexed(&self) -> Result<()> {
        let (cursors, deadline) = (self.rows("lastBlock").await?, Instant::now() + PATIENCE);
        while cursors.find_one(doc! { "indexed": true }).await?.is_none() {
            ensure!(Instant::now() < deadline, "no indexes for filters");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Milliseconds for pages of 100 at random depths, each reached by the token of the page before it.
    pub(super) async fn page_times(&self, blocks: u64, count: usize) -> Result<Vec<f64>> {
        let mut client = self.client()?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let to_block = rand::rng().random_range(blocks / 100 + 1..blocks);
            let mut request = pb::ListFeeEventsRequest {
                chain_id: CHAIN_ID,
                to_block,
                page_size: 100,
                ..Default::default()
            };
            request.page_token = client.list_fee_events(request.clone()).await?.into_inner().next_page_token;
            let began = Instant::now();
            let page = client.list_fee_events(request).await?.into_inner();
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            ensure!(page.events.len() == 100, "a page of {}", page.events.len());
        }
        Ok(times)
    }

    /// The same over HTTP, by page number.
    pub(super) async fn numbered_page_times(&self, events: u64, count: usize) -> Result<Vec<f64>> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let page = rand::rng().random_range(1..=events / 100);
            let url = format!("{}/fees?integrator={CHAIN_ID}&limit=100&page={page}", self.service.url());
            let began = Instant::now();
            let answer: serde_json::Value = http.get(url).send().await?.json().await?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            let shown = answer["data"].as_array().map_or(0, Vec::len);
            ensure!(shown == 100, "a page of {shown}");
        }
        Ok(times)
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        Ok(self.service.stop().await?)
    }
}
