//! `bursar index`: sources of contract events, how far they are read, and the events themselves.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use proto::indexer::v1 as pb;

use crate::client::{Connection, Indexer, pages};
use crate::output::{self, Output};

mod live;
mod watch;

const OPERATOR: &str = "operator";

#[derive(Debug, Args)]
pub struct Index {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List sources
    Sources,
    /// Add a source, or change its limits and nodes
    Add(Add),
    /// Add addresses of ours to a source, one for each line of a file
    Addresses { source: String, file: std::path::PathBuf },
    /// Show how far sources are
    Progress { source: Option<String> },
    /// Show a bar for each source, with rate and time left, until Ctrl-C
    Watch {
        source: Option<String>,
        /// End when every source shown has caught up
        #[arg(long)]
        until_complete: bool,
    },
    /// Give a range that used up its attempts fresh ones; without a block, every such range
    Requeue { source: String, from_block: Option<u64> },
    /// List events of a source, newest first
    Events {
        source: String,
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Print events of a source as they come, and what reorganisations take back
    Follow {
        source: String,
        /// First block; from now on when missing
        #[arg(long)]
        from_block: Option<u64>,
        /// Cursor of the last line seen
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Let the development chain's fee collector emit an event, and time how long it takes to be served
    Emit {
        #[arg(long, default_value_t = 1_234)]
        amount: u64,
    },
}

#[derive(Debug, Args)]
struct Add {
    name: String,
    #[arg(long)]
    chain_id: u64,
    /// Contract; without one, every contract of the chain
    #[arg(long, default_value = "")]
    contract: String,
    /// ABI signature of the event; LiFi's FeesCollected when missing
    #[arg(long, default_value = "")]
    event: String,
    #[arg(long, default_value_t = 0)]
    start_block: u64,
    /// Address of a node; may be given several times, in order of preference
    #[arg(long = "node", required = true)]
    nodes: Vec<String>,
    /// Blocks per range
    #[arg(long, default_value_t = 0)]
    batch_size: u32,
    /// Ranges read at once
    #[arg(long, default_value_t = 0)]
    concurrency: u32,
    /// Keep only events in which this indexed parameter is one of our addresses; may be given several times
    #[arg(long = "address-parameter")]
    address_parameters: Vec<String>,
    /// Read nothing yet
    #[arg(long)]
    paused: bool,
}

impl Index {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let mut client = connection.indexer(OPERATOR)?;
        match self.action {
            Action::Sources => sources(&mut client, out).await,
            Action::Add(add) => add.run(&mut client, out).await,
            Action::Addresses { source, file } => addresses(&mut client, source, &file, out).await,
            Action::Progress { source } => {
                let progress = progress(&mut client, source.unwrap_or_default()).await?;
                if out.json {
                    return output::json_list("bursar.indexer.v1.Progress", &progress);
                }
                table(&progress)
            }
            Action::Watch { source, until_complete } => {
                watch::run(&mut client, source.unwrap_or_default(), until_complete, out).await
            }
            Action::Requeue { source, from_block } => requeue(&mut client, source, from_block, out).await,
            Action::Events { source, limit } => events(&mut client, source, limit, out).await,
            Action::Follow { source, from_block, cursor } => {
                let request = pb::WatchEventsRequest {
                    source,
                    cursor: cursor.unwrap_or_default(),
                    from_block: from_block.unwrap_or(0),
                };
                live::follow(&mut client, request).await
            }
            Action::Emit { amount } => live::emit(connection, &mut client, amount, out).await,
        }
    }
}

impl Add {
    async fn run(self, client: &mut Indexer, out: Output) -> Result<()> {
        let source = pb::Source {
            name: self.name,
            chain_id: self.chain_id,
            contract_address: self.contract,
            event_signature: self.event,
            start_block: self.start_block,
            batch_size: self.batch_size,
            concurrency: self.concurrency,
            nodes: self.nodes,
            address_parameters: self.address_parameters,
            paused: self.paused,
        };
        let stored = client.add_source(pb::AddSourceRequest { source: Some(source) }).await?.into_inner();
        let stored = stored.source.context("the answer holds no source")?;
        if out.json {
            return output::json("bursar.indexer.v1.Source", &stored);
        }
        output::print(&format!("{} is read from block {} on", stored.name, stored.start_block))
    }
}

async fn sources(client: &mut Indexer, out: Output) -> Result<()> {
    let sources = client.list_sources(pb::ListSourcesRequest {}).await?.into_inner().sources;
    if out.json {
        return output::json_list("bursar.indexer.v1.Source", &sources);
    }
    let rows = sources.into_iter().map(|source| {
        let contract =
            if source.contract_address.is_empty() { "any".to_owned() } else { source.contract_address };
        let event = source.event_signature.split('(').next().unwrap_or_default().to_owned();
        let state = if source.paused { "paused" } else { "on" }.to_owned();
        let nodes = source.nodes.len().to_string();
        [
            source.name,
            source.chain_id.to_string(),
            contract,
            event,
            source.start_block.to_string(),
            nodes,
            state,
        ]
    });
    output::table(["SOURCE", "CHAIN", "CONTRACT", "EVENT", "START", "NODES", "STATE"], rows)
}

async fn addresses(client: &mut Indexer, source: String, file: &std::path::Path, out: Output) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let all: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let mut last: Option<pb::AddSourceAddressesResponse> = None;
    for chunk in all.chunks(20_000) {
        let request = pb::AddSourceAddressesRequest { source: source.clone(), addresses: chunk.to_vec() };
        let mut answer = client.add_source_addresses(request).await?.into_inner();
        answer.added += last.map_or(0, |before| before.added);
        last = Some(answer);
    }
    let Some(answer) = last else { bail!("{} names no address", file.display()) };
    if out.json {
        return output::json("bursar.indexer.v1.AddSourceAddressesResponse", &answer);
    }
    output::print(&format!(
        "{} addresses; new ones count from block {} on",
        answer.addresses, answer.from_block
    ))
}

async fn progress(client: &mut Indexer, source: String) -> Result<Vec<pb::Progress>> {
    Ok(client.get_progress(pb::GetProgressRequest { source }).await?.into_inner().sources)
}

fn table(progress: &[pb::Progress]) -> Result<()> {
    let rows = progress.iter().map(|p| {
        [
            p.source.clone(),
            p.complete_to_block.to_string(),
            p.head_block.to_string(),
            p.lag_blocks.to_string(),
            mode(p).to_owned(),
            p.events.to_string(),
            p.exhausted.len().to_string(),
        ]
    });
    output::table(["SOURCE", "COMPLETE TO", "HEAD", "LAG", "MODE", "EVENTS", "PARKED"], rows)?;
    for one in progress {
        for range in &one.exhausted {
            let (from, to, tries) = (range.from_block, range.to_block, range.attempts);
            output::print(&format!(
                "{}: blocks {from} to {to} failed {tries} times: {}",
                one.source, range.error
            ))?;
        }
        for range in &one.retried {
            let (from, to) = (range.from_block, range.to_block);
            output::print(&format!(
                "{}: blocks {from} to {to} are tried again: {}",
                one.source, range.error
            ))?;
        }
    }
    Ok(())
}

fn mode(progress: &pb::Progress) -> &'static str {
    match progress.mode() {
        pb::Mode::Historical => "historical",
        pb::Mode::Realtime => "realtime",
        pb::Mode::Unspecified => "",
    }
}

async fn requeue(client: &mut Indexer, source: String, from_block: Option<u64>, out: Output) -> Result<()> {
    let requeued = match from_block {
        None => requeue_all(client, source).await?,
        Some(from_block) => {
            let request = pb::RequeueRangeRequest { source: source.clone(), from_block };
            match client.requeue_range(request).await?.into_inner().requeued {
                0 => bail!("no range of {source} that begins at block {from_block} has used up its attempts"),
                requeued => requeued,
            }
        }
    };
    if out.json {
        return output::json(
            "bursar.indexer.v1.RequeueRangeResponse",
            &pb::RequeueRangeResponse { requeued },
        );
    }
    output::print(&format!("{requeued} requeued"))
}

/// The indexer names the first of them only, so it is asked until it names none that was not requeued before.
async fn requeue_all(client: &mut Indexer, source: String) -> Result<u32> {
    let (mut seen, mut requeued) = (BTreeSet::new(), 0);
    loop {
        let progress = progress(client, source.clone()).await?;
        let named = progress.iter().flat_map(|one| &one.exhausted).map(|range| range.from_block);
        let new: Vec<u64> = named.filter(|block| seen.insert(*block)).collect();
        if new.is_empty() {
            return Ok(requeued);
        }
        for from_block in new {
            let request = pb::RequeueRangeRequest { source: source.clone(), from_block };
            requeued += client.requeue_range(request).await?.into_inner().requeued;
        }
    }
}

async fn events(client: &mut Indexer, source: String, limit: u32, out: Output) -> Result<()> {
    let events = pages(usize::try_from(limit)?, async |page_size, page_token| {
        let request =
            pb::ListEventsRequest { source: source.clone(), page_size, page_token, ..Default::default() };
        let page = client.list_events(request).await?.into_inner();
        Ok((page.events, page.next_page_token))
    });
    let events = events.await?;
    if out.json {
        return output::json_list("bursar.indexer.v1.Event", &events);
    }
    let rows = events.iter().map(|event| {
        let place = format!("{}/{}", event.block_number, event.log_index);
        Ok([place, event.name.clone(), parameters(event)?, event.transaction_hash.clone()])
    });
    output::table(["BLOCK/LOG", "EVENT", "PARAMETERS", "TRANSACTION"], rows.collect::<Result<Vec<_>>>()?)
}

fn parameters(event: &pb::Event) -> Result<String> {
    Ok(output::value("bursar.indexer.v1.Event", event)?["parameters"].to_string())
}
