//! Measures Bursar against the raw limit of the machine and against peers, and prints the ratios as one table.
//!
//! Owns the servers it measures on: each is private, started in a temporary directory and gone at the end, whatever the end
//! is. All numbers of a row come from the same run on the same servers, so that their ratios mean something on any machine.
//!
//! Never: measures a server it did not start, judges by an absolute figure where there is a limit to compare with, or
//! shows a figure that was not checked to be of work really done.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and ratios are shown to people; no money is computed here"
)]

mod broadcast;
mod customer;
mod derivation;
mod fleet;
mod gateway;
mod indexer;
mod memory;
mod peer;
mod pgbench;
mod programs;
mod queue;
mod server;
mod sign;
mod signature;
mod stack;
mod table;
mod unary;
mod withdrawals;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use devstack::Tools;
use tokio::signal::unix::{SignalKind, signal};

use crate::server::Server;
use crate::stack::Stack;
use crate::table::Row;

/// How long is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Under two minutes in all
    Quick,
    /// Longer rounds, all peers, and the memory of a full queue
    Full,
}

impl Mode {
    fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Mode::Quick => quick,
            Mode::Full => full,
        }
    }

    /// How often each number is taken; ours and the others in turn, so that a slow minute hits all of them.
    fn rounds(self) -> usize {
        self.pick(2, 3)
    }
}

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Queue, each job claimed and completed by itself
    Queue,
    /// Queue, in batches of 100
    Batches,
    /// Sign requests through the gateway, against durable commits
    Sign,
    /// Signatures on one core
    Signature,
    /// Broadcasting of signed transactions
    Broadcast,
    /// Whole withdrawals, and how long an approved one waits
    Withdrawals,
    /// A unary call through the whole stack, against a bare server
    Unary,
    /// Memory of the services
    Memory,
    /// The orchestrator's health round
    Fleet,
    /// Events from a node into the store, pages at depth, memory over millions
    Indexer,
}

/// Measures Bursar against raw limits and peers.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Cli {
    /// How long is measured
    #[arg(value_enum, long, env = "BENCH", default_value = "full")]
    mode: Mode,
    /// Measure only these, separated by commas
    #[arg(value_enum, long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How many jobs are queued when memory is measured; in full mode only
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Serve as the bare server of the unary measurement, until standard input ends
    #[arg(long, hide = true)]
    serve_plain: bool,
}

impl Cli {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    if cli.serve_plain {
        return unary::serve_plain().await;
    }
    let began = Instant::now();
    let dir = programs::scratch_dir()?;
    let mut report = Report::default();
    // Both signals end the run through the ordinary way out, on which every server is stopped.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let interrupted = tokio::select! {
        () = Box::pin(measure(&cli, dir.path(), &mut report)) => false,
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
    };
    report.print(began)?;
    if interrupted {
        bail!("interrupted");
    }
    if !report.failures.is_empty() {
        bail!("not measured:\n{}", report.failures.join("\n"));
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Report {
    rows: Vec<Row>,
    failures: Vec<String>,
}

impl Report {
    /// One measurement that fails must not take the others with it.
    fn add(&mut self, what: &str, measured: Result<Vec<Row>>) {
        match measured {
            Ok(rows) => {
                rows.iter().for_each(|row| eprintln!("    {}", row.line()));
                self.rows.extend(rows);
            }
            Err(error) => {
                eprintln!("    failed: {error:#}");
                self.failures.push(format!("{what}: {error:#}"));
            }
        }
    }

    fn print(&self, began: Instant) -> Result<()> {
        if !self.rows.is_empty() {
            table::print(&self.rows)?;
        }
        eprintln!("measured in {:.0} s", began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Tells what is being measured, because it takes a while.
fn step(what: &str) {
    eprintln!("==> {what}");
}

/// What is wanted and what came of it.
struct Run<'a> {
    cli: &'a Cli,
    report: &'a mut Report,
}

impl Run<'_> {
    fn wants_any(&self, parts: &[Part]) -> bool {
        parts.iter().any(|part| self.cli.wants(*part))
    }

    async fn row(&mut self, part: Part, what: &str, measured: impl Future<Output = Result<Vec<Row>>>) {
        if self.cli.wants(part) {
            step(what);
            self.report.add(what, Box::pin(measured).await);
        }
    }
}

/// Every measurement, one line for each.
async fn measure(cli: &Cli, dir: &Path, report: &mut Report) {
    let (tools, mode) = (Tools::locate(), cli.mode);
    let mut run = Run { cli, report };
    if run.wants_any(&[Part::Queue, Part::Batches, Part::Sign]) {
        on_postgres(&mut run, &tools, dir).await;
    }
    run.row(Part::Signature, "signatures and keys on one core", async { signature::rows(mode) }).await;
    run.row(Part::Broadcast, "broadcasting, against plain batches", broadcast::rows(&tools, dir, mode)).await;
    run.row(Part::Indexer, "events into the store, against a loop by hand", indexer::rows(&tools, dir, mode))
        .await;
    run.row(Part::Indexer, "millions of events", indexer::at_depth(&tools, dir, mode)).await;
    if run.wants_any(&[Part::Withdrawals, Part::Unary, Part::Memory, Part::Fleet]) {
        on_stack(&mut run, dir).await;
    }
}

async fn on_postgres(run: &mut Run<'_>, tools: &Tools, dir: &Path) {
    step("starting PostgreSQL with fsync on");
    let mode = run.cli.mode;
    let mut server = match Box::pin(Server::start(tools, dir)).await {
        Ok(server) => server,
        Err(error) => return run.report.add("postgres", Err(error)),
    };
    run.row(Part::Queue, "queue, each job by itself", queue::each::rows(&server, mode)).await;
    run.row(Part::Batches, "queue, in batches of 100", queue::batches::rows(&server, mode)).await;
    run.row(Part::Sign, "sign requests, against durable commits", sign::rows(&server, dir, mode)).await;
    if let Err(error) = server.stop().await {
        run.report.add("postgres", Err(error));
    }
}

async fn on_stack(run: &mut Run<'_>, dir: &Path) {
    step("starting a whole stack");
    let (mode, jobs) = (run.cli.mode, run.cli.mode.pick(0, run.cli.jobs));
    let stack = match Stack::start(dir).context("cannot start a stack") {
        Ok(stack) => stack,
        Err(error) => return run.report.add("stack", Err(error)),
    };
    let idle = memory::read(&stack);
    run.row(Part::Unary, "unary calls, against a bare server", unary::rows(&stack, mode)).await;
    run.row(Part::Withdrawals, "approved to broadcast, idle", withdrawals::latency(&stack, mode)).await;
    run.row(Part::Withdrawals, "whole withdrawals", withdrawals::rate(&stack, mode)).await;
    run.row(Part::Memory, "memory", async { memory::rows(&stack, idle?, jobs).await }).await;
    // Last, because a thousand processes are in everybody's way.
    run.row(Part::Fleet, "the orchestrator's health round", fleet::rows(&stack, mode)).await;
}
