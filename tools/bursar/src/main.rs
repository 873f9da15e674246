//! Reads the command line and says what went wrong, if anything did.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(bursar::Cli::parse().run()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed; the exit code still tells.
            writeln!(std::io::stderr(), "error: {}", bursar::output::explain(&error)).ok();
            ExitCode::FAILURE
        }
    }
}
