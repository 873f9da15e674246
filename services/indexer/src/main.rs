//! The indexer's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::main::<indexer::Indexer>()
}
