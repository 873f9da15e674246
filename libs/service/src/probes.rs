//! Health and `/metrics` of a process that has no other server.
//!
//! Invariant: the work never waits for its probes. If another process still uses the address, such as a predecessor that is
//! ending, the probes wait for it in the background.

use std::{io, net::SocketAddr, time::Duration};

use clap::{Arg, ArgMatches, value_parser};
use tokio::net::TcpListener;

use crate::context::Context;

const LISTEN: &str = "listen";
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The option for the address of health and metrics.
pub fn listen_arg() -> Arg {
    Arg::new(LISTEN)
        .long(LISTEN)
        .value_name("ADDRESS")
        .value_parser(value_parser!(SocketAddr))
        .help("Address for health and metrics; none when missing")
}

impl<C: Send + Sync + 'static> Context<C> {
    /// Shows health and `/metrics` where [`listen_arg`] says; nothing without it. `with_checks` may add checks. Call it
    /// before the work begins, because earlier records are lost.
    pub fn probes(&self, arguments: &ArgMatches, with_checks: impl FnOnce(rpc::Server) -> rpc::Server) {
        let Some(listen) = arguments.get_one::<SocketAddr>(LISTEN).copied() else { return };
        telemetry::metrics::install();
        let server = with_checks(self.server_at(listen));
        self.spawn("probes", move |stop| async move {
            if stop.run_until_cancelled(until_free(listen)).await.is_none() {
                return Ok(());
            }
            server.serve(stop).await
        });
    }
}

/// Waits until the address is free. The server reports any other problem with it.
async fn until_free(listen: SocketAddr) {
    let mut warned = false;
    while matches!(TcpListener::bind(listen).await, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
        if !warned {
            tracing::warn!(%listen, "another process listens here; health and metrics are shown once it has gone");
            warned = true;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
