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
mod gateway;
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
    /// Memory of the services
    Memory,
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
}

impl Cli {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
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

/// What was measured, and what could not be.
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

async fn measure(cli: &Cli, dir: &Path, report: &mut Report) {
    let tools = Tools::locate();
    if [Part::Queue, Part::Batches, Part::Sign].into_iter().any(|part| cli.wants(part)) {
        on_postgres(cli, &tools, dir, report).await;
    }
    if cli.wants(Part::Signature) {
        step("signatures on one core");
        report.add("signature", signature::rows(cli.mode));
    }
    if cli.wants(Part::Broadcast) {
        step("broadcasting, against plain JSON-RPC batches");
        report.add("broadcast", Box::pin(broadcast::rows(&tools, dir, cli.mode)).await);
    }
    if cli.wants(Part::Withdrawals) || cli.wants(Part::Memory) {
        on_stack(cli, dir, report).await;
    }
}

async fn on_postgres(cli: &Cli, tools: &Tools, dir: &Path, report: &mut Report) {
    step("starting PostgreSQL with fsync on");
    let mut server = match Box::pin(Server::start(tools, dir)).await {
        Ok(server) => server,
        Err(error) => return report.add("postgres", Err(error)),
    };
    if cli.wants(Part::Queue) {
        step("queue, each job by itself");
        report.add("queue", Box::pin(queue::each::rows(&server, cli.mode)).await);
    }
    if cli.wants(Part::Batches) {
        step("queue, in batches of 100");
        report.add("batches", Box::pin(queue::batches::rows(&server, cli.mode)).await);
    }
    if cli.wants(Part::Sign) {
        step("sign requests through the gateway, against durable commits");
        report.add("sign", Box::pin(sign::rows(&server, dir, cli.mode)).await);
    }
    if let Err(error) = server.stop().await {
        report.add("postgres", Err(error));
    }
}

async fn on_stack(cli: &Cli, dir: &Path, report: &mut Report) {
    step("starting a whole stack");
    let stack = match Stack::start(dir).context("cannot start a stack") {
        Ok(stack) => stack,
        Err(error) => return report.add("stack", Err(error)),
    };
    let idle = memory::read(&stack);
    if cli.wants(Part::Withdrawals) {
        step("approved to broadcast on an idle system");
        report.add("latency", Box::pin(withdrawals::latency(&stack, cli.mode)).await);
        step("whole withdrawals");
        report.add("withdrawals", Box::pin(withdrawals::rate(&stack, cli.mode)).await);
    }
    if cli.wants(Part::Memory) {
        step("memory");
        let jobs = cli.mode.pick(0, cli.jobs);
        let measured = async { Box::pin(memory::rows(&stack, idle?, jobs)).await };
        report.add("memory", measured.await);
    }
}
