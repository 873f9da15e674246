//! The signer gateway's process.

fn main() -> std::process::ExitCode {
    service::main::<signer_gateway::SignerGateway>()
}
