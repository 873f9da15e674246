//! The intent service.

fn main() -> std::process::ExitCode {
    service::main::<intent::Intent>()
}
