//! The confirmation service.

fn main() -> std::process::ExitCode {
    service::main::<confirmation::Confirmation>()
}
