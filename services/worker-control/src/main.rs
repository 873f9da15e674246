//! Worker control's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::main::<worker_control::WorkerControl>()
}
