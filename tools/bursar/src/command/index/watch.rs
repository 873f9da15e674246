//! `bursar index watch`: a bar for each source, or a line for each change, over restarts of the indexer.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context, Result};
use proto::indexer::v1 as pb;

use super::progress;
use crate::client::Indexer;
use crate::output::{self, Output};
use crate::reconnect::{self, Remaining};

const BAR: u64 = 24;
const REDRAW: Duration = Duration::from_millis(500);

/// What to show, how, and what was shown last.
struct View {
    source: String,
    until_complete: bool,
    json: bool,
    terminal: bool,
    drawn: Vec<String>,
}

/// Draws until Ctrl-C. A terminal is redrawn in place; anything else gets a line for each change.
pub(super) async fn run(
    client: &mut Indexer,
    source: String,
    until_complete: bool,
    out: Output,
) -> Result<()> {
    let terminal = !out.json && std::io::stdout().is_terminal();
    let mut view = View { source, until_complete, json: out.json, terminal, drawn: Vec::new() };
    tokio::select! {
        ended = reconnect::follow(async || view.poll(client).await) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

impl View {
    /// Shows what changes until all has caught up, if that is the end, or until the indexer does not answer.
    async fn poll(&mut self, client: &mut Indexer) -> Result<Remaining> {
        if self.terminal {
            // The report of the outage moved the cursor, so that the last drawing cannot be overwritten.
            self.drawn.clear();
        }
        loop {
            let all = client.list_sources(pb::ListSourcesRequest {}).await?.into_inner().sources;
            let progress = progress(client, self.source.clone()).await?;
            let start =
                |name: &str| all.iter().find(|known| known.name == name).map_or(0, |known| known.start_block);
            let width = progress.iter().map(|p| p.source.len()).max().unwrap_or(0);
            let lines: Vec<String> = if self.json {
                let line = |p| Ok(output::value("bursar.indexer.v1.Progress", p)?.to_string());
                progress.iter().map(line).collect::<Result<_>>()?
            } else {
                progress.iter().map(|p| line(p, start(&p.source), width)).collect()
            };
            draw(&lines, &self.drawn, self.terminal)?;
            self.drawn = lines;
            if self.until_complete && !progress.is_empty() && progress.iter().all(|p| p.lag_blocks == 0) {
                return Ok(Remaining::Nothing);
            }
            tokio::time::sleep(REDRAW).await;
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
    // A line that is wider than the terminal is cut off there: wrapped, it would be two, and the way up too short.
    text.push_str("\x1b[?7l");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("\x1b[?7h");
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
        Some(left) => format!("{} left", output::span(left.seconds)),
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
}
