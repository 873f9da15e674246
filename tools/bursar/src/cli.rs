//! The commands and the options they share.

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::client::{Connection, Target};
use crate::command::demo::Demo;
use crate::command::down::Down;
use crate::command::import::Import;
use crate::command::index::Index;
use crate::command::job::Job;
use crate::command::logs::Logs;
use crate::command::signer::Signer;
use crate::command::status::Status;
use crate::command::up::Up;
use crate::command::wallet::Wallet;
use crate::command::withdraw::Withdraw;
use crate::command::worker::Worker;
use crate::output::Output;

/// Moves money for custodial wallets: runs a stack on this machine, and drives one anywhere.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    target: Target,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything on this machine: databases, two chains, the six services
    Up(Up),
    /// Stop everything that `up` started
    Down(Down),
    /// Show what runs and its health; exit 1 if anything is down
    Status(Status),
    /// Show the log of a part
    Logs(Logs),
    /// Pay a withdrawal of each kind on the local stack and show each step
    Demo(Demo),
    /// Request, approve and follow withdrawals
    Withdraw(Withdraw),
    /// Look at jobs and act on those that are parked
    Job(Job),
    /// Look at operation wallets
    Wallet(Wallet),
    /// Look at indexed contract events and how far they are read
    Index(Index),
    /// Look at the signer and its audit log
    Signer(Signer),
    /// Look at workers, stop, start and restart them
    Worker(Worker),
    /// Take over withdrawals that another system has broadcast
    Import(Import),
}

impl Cli {
    pub async fn run(self) -> Result<()> {
        let out = Output { json: self.json };
        let target = self.target;
        match self.command {
            Command::Up(up) => Box::pin(up.run(target.local(), out)).await,
            Command::Down(down) => Box::pin(down.run(target)).await,
            Command::Status(status) => status.run(target, out).await,
            Command::Logs(logs) => logs.run(target).await,
            Command::Demo(demo) => Box::pin(demo.run(&Connection::open(target.local())?, out)).await,
            Command::Withdraw(withdraw) => Box::pin(withdraw.run(&Connection::open(target)?, out)).await,
            Command::Job(job) => Box::pin(job.run(&Connection::open(target)?, out)).await,
            Command::Index(index) => Box::pin(index.run(&Connection::open(target)?, out)).await,
            Command::Wallet(wallet) => Box::pin(wallet.run(&Connection::open(target)?, out)).await,
            Command::Signer(signer) => Box::pin(signer.run(&Connection::open(target)?, out)).await,
            Command::Worker(worker) => Box::pin(worker.run(&Connection::open(target)?, out)).await,
            Command::Import(import) => Box::pin(import.run(&Connection::open(target)?, out)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
