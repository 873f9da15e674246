//! `bursar index`: sources of contract events, how far they are read, and the events themselves.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use proto::indexer::v1 as pb;

use crate::client::{Connection, Indexer};
use crate::index_seed;
use crate::output::{self, Output};
use crate::stack::BSC;

const OPERATOR: &str = "operator";
const BAR: u64 = 24;
const REDRAW: Duration = Duration::from_millis(500);

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
    /// Tell a source which addresses are ours, one for each line of a file
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
            Action::Addresses { source, file } => addresses(&mut client, source, &file).await,
            Action::Progress { source } => {
                let progress = progress(&mut client, source.unwrap_or_default()).await?;
                if out.json {
                    return output::json_list("bursar.indexer.v1.Progress", &progress);
                }
                table(&progress)
            }
            Action::Watch { source, until_complete } => {
                watch(&mut client, source.unwrap_or_default(), until_complete).await
            }
            Action::Requeue { source, from_block } => requeue(&mut client, source, from_block).await,
            Action::Events { source, limit } => events(&mut client, source, limit, out).await,
            Action::Follow { source, from_block, cursor } => {
                let request = pb::WatchEventsRequest {
                    source,
                    cursor: cursor.unwrap_or_default(),
                    from_block: from_block.unwrap_or(0),
                };
                follow(&mut client, request).await
            }
            Action::Emit { amount } => emit(connection, &mut client, amount).await,
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

async fn addresses(client: &mut Indexer, source: String, file: &std::path::Path) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let all: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let mut last = None;
    for chunk in all.chunks(20_000) {
        let request = pb::AddSourceAddressesRequest { source: source.clone(), addresses: chunk.to_vec() };
        last = Some(client.add_source_addresses(request).await?.into_inner());
    }
    let Some(answer) = last else { bail!("{} names no address", file.display()) };
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

/// Draws until Ctrl-C. A terminal is redrawn in place; anything else gets a line for each change.
async fn watch(client: &mut Indexer, source: String, until_complete: bool) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    let mut drawn: Vec<String> = Vec::new();
    loop {
        let all = client.list_sources(pb::ListSourcesRequest {}).await?.into_inner().sources;
        let progress = progress(client, source.clone()).await?;
        let start =
            |name: &str| all.iter().find(|known| known.name == name).map_or(0, |known| known.start_block);
        let width = progress.iter().map(|p| p.source.len()).max().unwrap_or(0);
        let lines: Vec<String> = progress.iter().map(|p| line(p, start(&p.source), width)).collect();
        draw(&lines, &drawn, terminal)?;
        drawn = lines;
        if until_complete && !progress.is_empty() && progress.iter().all(|p| p.lag_blocks == 0) {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(REDRAW) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn draw(lines: &[String], before: &[String], terminal: bool) -> Result<()> {
    if !terminal {
        return lines.iter().filter(|line| !before.contains(line)).try_for_each(|line| output::print(line));
    }
    let mut text = String::new();
    if !before.is_empty() {
        // Up to the first line of the last drawing, and clear from there on.
        text.push_str(&format!("\x1b[{}A\x1b[J", before.len()));
    }
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to the terminal")
}

/// One source: its bar, how far, how fast, how long still.
fn line(progress: &pb::Progress, start: u64, width: usize) -> String {
    let whole = progress.head_block.saturating_add(1).saturating_sub(start).max(1);
    let done = whole.saturating_sub(progress.lag_blocks);
    let filled = usize::try_from((done * BAR / whole).min(BAR)).unwrap_or(0);
    let rest = usize::try_from(BAR).unwrap_or(0).saturating_sub(filled);
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(rest));
    let left = match &progress.time_left {
        _ if progress.lag_blocks == 0 => "at the head".to_owned(),
        Some(left) => format!("{} left", span(left.seconds)),
        None => "no end in sight".to_owned(),
    };
    let parked = match progress.exhausted.len() {
        0 => String::new(),
        n => format!("  {n} parked"),
    };
    format!(
        "{:<width$}  [{bar}] {:>3} %  {} of {}  {} blocks/s  {left}  {} events{parked}",
        progress.source,
        done * 100 / whole,
        progress.complete_to_block,
        progress.head_block,
        progress.blocks_per_second,
        progress.events,
    )
}

fn span(seconds: i64) -> String {
    match seconds {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

async fn requeue(client: &mut Indexer, source: String, from_block: Option<u64>) -> Result<()> {
    let Some(from_block) = from_block else { return requeue_all(client, source).await };
    let request = pb::RequeueRangeRequest { source: source.clone(), from_block };
    match client.requeue_range(request).await?.into_inner().requeued {
        0 => bail!("no range of {source} that begins at block {from_block} has used up its attempts"),
        requeued => output::print(&format!("{requeued} requeued")),
    }
}

/// The indexer names the first of them only, so it is asked until it names none that was not requeued before.
async fn requeue_all(client: &mut Indexer, source: String) -> Result<()> {
    let (mut seen, mut requeued) = (BTreeSet::new(), 0);
    loop {
        let progress = progress(client, source.clone()).await?;
        let named = progress.iter().flat_map(|one| &one.exhausted).map(|range| range.from_block);
        let new: Vec<u64> = named.filter(|block| seen.insert(*block)).collect();
        if new.is_empty() {
            return output::print(&format!("{requeued} requeued"));
        }
        for from_block in new {
            let request = pb::RequeueRangeRequest { source: source.clone(), from_block };
            requeued += client.requeue_range(request).await?.into_inner().requeued;
        }
    }
}

async fn events(client: &mut Indexer, source: String, limit: u32, out: Output) -> Result<()> {
    let mut events = Vec::new();
    let mut page_token = String::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(events.len())?);
        if left == 0 {
            break;
        }
        let request = pb::ListEventsRequest {
            source: source.clone(),
            page_size: left.min(500),
            page_token,
            ..Default::default()
        };
        let page = client.list_events(request).await?.into_inner();
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
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

async fn follow(client: &mut Indexer, request: pb::WatchEventsRequest) -> Result<()> {
    let mut stream = client.watch_events(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        output::json_line("bursar.indexer.v1.WatchEventsResponse", &response)?;
    }
    Ok(())
}

async fn emit(connection: &Connection, client: &mut Indexer, amount: u64) -> Result<()> {
    let node = connection.part(BSC).context("no development chain here; start one with `bursar up`")?;
    let (hash, block) = index_seed::emit(&node, amount).await?;
    let mined = Instant::now();
    output::print(&format!("block {block}: {hash}"))?;
    loop {
        let request = pb::ListEventsRequest {
            source: index_seed::FEES.to_owned(),
            from_block: block,
            to_block: block,
            ..Default::default()
        };
        let events = client.list_events(request).await?.into_inner().events;
        if let Some(event) = events.iter().find(|event| event.transaction_hash == hash) {
            let ms = mined.elapsed().as_millis();
            return output::print(&format!("served after {ms} ms: {} {}", event.name, parameters(event)?));
        }
        if mined.elapsed() > Duration::from_secs(30) {
            bail!("the indexer does not serve the event; see `bursar index progress`");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(complete: u64, head: u64, lag: u64) -> pb::Progress {
        pb::Progress {
            source: "fees".to_owned(),
            complete_to_block: complete,
            head_block: head,
            lag_blocks: lag,
            blocks_per_second: 50,
            events: 7,
            time_left: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
            ..Default::default()
        }
    }

    #[test]
    fn a_bar_shows_how_far_a_source_is() {
        let half = line(&progress(149, 199, 50), 100, 6);
        assert_eq!(
            half,
            "fees    [############............]  50 %  149 of 199  50 blocks/s  90 s left  7 events"
        );
        let done = line(&progress(199, 199, 0), 100, 4);
        assert!(done.contains("########################]") && done.contains("at the head"), "{done}");
        assert!(line(&progress(0, 0, 0), 0, 4).contains("100 %"));
    }

    #[test]
    fn spans_are_told_in_the_unit_people_think_in() {
        assert_eq!([span(5), span(600), span(10_000), span(300_000)], ["5 s", "10 min", "2 h", "3 days"]);
    }
}
