//! The strategy worker's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    float_worker::program::main()
}
