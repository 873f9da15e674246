//! Health and `/metrics` of a process that works and answers nobody else.
//!
//! Invariant: the work never waits for its probes. An address that another process still has, as a predecessor that is being
//! ended does, is waited for in the background.

use std::{io, net::SocketAddr, time::Duration};

use clap::{Arg, ArgMatches, value_parser};
use tokio::net::TcpListener;

use crate::context::Context;

const LISTEN: &str = "listen";
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The option by which a command is told where to show health and metrics.
#[must_use]
pub fn listen_arg() -> Arg {
    Arg::new(LISTEN)
        .long(LISTEN)
        .value_name("ADDRESS")
        .value_parser(value_parser!(SocketAddr))
        .help("Address for health and metrics; none when missing")
}

impl<C: Send + Sync + 'static> Context<C> {
    /// Shows health and `/metrics` where [`listen_arg`] says; nothing without it. `dress` may add checks. To be called before
    /// the work begins: what is recorded earlier is lost.
    pub fn probes(&self, arguments: &ArgMatches, dress: impl FnOnce(rpc::Server) -> rpc::Server) {
        let Some(listen) = arguments.get_one::<SocketAddr>(LISTEN).copied() else { return };
        telemetry::metrics::install();
        let server = dress(self.server_at(listen));
        self.spawn("probes", move |stop| async move {
            if stop.run_until_cancelled(is_free(listen)).await.is_none() {
                return Ok(());
            }
            server.serve(stop).await
        });
    }
}

/// Waits until nobody listens there. Other refusals are left to the server, which names them.
async fn is_free(listen: SocketAddr) {
    let mut told = false;
    while matches!(TcpListener::bind(listen).await, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
        if !told {
            tracing::warn!(%listen, "another process listens here; health and metrics are shown once it has gone");
            told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
