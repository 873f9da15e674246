//! Signals and panics.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::StartError;

pub(crate) fn listen(kind: SignalKind) -> Result<Signal, StartError> {
    signal(kind).map_err(|source| StartError::System { what: "listen for signals", source })
}

/// The first SIGTERM or SIGINT asks for a graceful stop, the second ends the process at once.
pub(crate) fn stop_on_signal(shutdown: CancellationToken) -> Result<(), StartError> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if shutdown.is_cancelled() {
                tracing::warn!("second signal, stopping at once");
                std::process::exit(1);
            }
            tracing::info!("signal received, stopping");
            shutdown.cancel();
        }
    });
    Ok(())
}

/// A command reads its configuration once. A hang-up (a closed terminal, or a signal meant for a whole group) is logged and does
/// not end it.
pub(crate) fn say_on_hangup(mut hangup: Signal) {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!("hang-up ignored: a new configuration takes effect after a restart");
        }
    });
}

/// Panics become log lines like any other fault, with their place in the code.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("no text");
        tracing::error!(location, panic = text, "panic");
    }));
}
