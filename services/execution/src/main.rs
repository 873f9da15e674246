//! The execution service's process.

fn main() -> std::process::ExitCode {
    service::main::<execution::Execution>()
}
