//! SIGHUP: reading the configuration again while the service runs.
//!
//! Owns the rule that a bad configuration is refused as a whole and the old one kept. What can change live does so at once: API
//! keys, certificates' names, the log filter, and whatever the service takes from its own settings. What cannot is said.

use std::{path::PathBuf, sync::Arc};

use telemetry::{Telemetry, TelemetryConfig};
use tokio::{signal::unix::Signal, sync::watch};

use crate::{
    Service,
    config::ConfigErrors,
    context::Context,
    run::{self, Common, Loaded},
};

/// Applies new configurations to a running service.
pub(crate) struct Reload<C> {
    pub(crate) common: Arc<Common>,
    pub(crate) auth: rpc::Auth,
    pub(crate) config: watch::Sender<Arc<C>>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl<C> Reload<C> {
    /// Takes a new configuration, or keeps the old one and says why.
    pub(crate) fn apply(&self, read: Result<Loaded<C>, ConfigErrors>) -> Result<(), ConfigErrors> {
        let new = read.inspect_err(|errors| {
            tracing::error!(mistakes = %errors, "configuration refused, the old one stays");
        })?;
        // Both were checked while reading, so neither can fail half-way through.
        if let Err(error) = self.auth.replace(&new.common.auth) {
            tracing::error!(%error, "callers not replaced");
        }
        if let Err(error) = self.telemetry.set_filter(&new.common.telemetry.filter) {
            tracing::error!(%error, "log filter not replaced");
        }
        self.config.send_replace(Arc::new(new.own));
        for (section, same) in [
            ("server", self.common.server == new.common.server),
            ("database", self.common.database == new.common.database),
            (
                "telemetry (all but its filter)",
                same_but_filter(&self.common.telemetry, &new.common.telemetry),
            ),
        ] {
            if !same {
                tracing::warn!(section, "this change takes effect after a restart");
            }
        }
        tracing::info!("configuration reloaded");
        Ok(())
    }
}

fn same_but_filter(old: &TelemetryConfig, new: &TelemetryConfig) -> bool {
    *old == TelemetryConfig { filter: old.filter.clone(), ..new.clone() }
}

/// Reads the configuration again on each SIGHUP, until shutdown.
pub(crate) fn on_hangup<S: Service>(
    file: Option<PathBuf>,
    ctx: &Context<S::Config>,
    config: watch::Sender<Arc<S::Config>>,
    telemetry: Arc<Telemetry>,
    mut hangup: Signal,
) {
    let reload = Reload { common: Arc::clone(&ctx.common), auth: ctx.auth.clone(), config, telemetry };
    let shutdown = ctx.shutdown.clone();
    ctx.tasks.spawn(async move {
        let serve = async {
            while hangup.recv().await.is_some() {
                // A refusal is logged inside; there is nobody else to tell.
                let _ = reload.apply(run::read::<S>(file.as_ref()));
            }
        };
        shutdown.run_until_cancelled(serve).await;
    });
}
