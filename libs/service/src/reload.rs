//! SIGHUP: reading the configuration again while the service runs.
//!
//! Owns the rule that a bad configuration is refused as a whole and the old one kept. API keys, the
//! names of certificates, the log filter and what the service itself takes over change at once. Changes that need a restart
//! are logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use telemetry::{Telemetry, TelemetryConfig};
use tokio::{signal::unix::Signal, sync::watch};

use crate::{
    Service,
    config::{ConfigErrors, same_key},
    context::Context,
    run::{self, Common, Loaded},
};

/// Applies new configurations to a running service.
pub(crate) struct Reload<C> {
    common: Arc<Common>,
    auth: rpc::Auth,
    config: watch::Sender<Arc<C>>,
    telemetry: Arc<Telemetry>,
    /// A hash of each section at the start.
    sections: BTreeMap<String, u64>,
    live: &'static [&'static str],
}

/// These take effect at once, or are compared setting by setting below.
const SHARED: [&str; 4] = ["auth", "server", "database", "telemetry"];

impl<C: Send + Sync + 'static> Reload<C> {
    pub(crate) fn new<S: Service<Config = C>>(
        ctx: &Context<C>,
        config: watch::Sender<Arc<C>>,
        telemetry: Arc<Telemetry>,
        sections: BTreeMap<String, u64>,
    ) -> Self {
        let (common, auth) = (Arc::clone(&ctx.common), ctx.auth.clone());
        Self { common, auth, config, telemetry, sections, live: S::LIVE }
    }

    /// Applies a new configuration, or keeps the old one and logs why.
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
        for section in self.changed(&new.sections) {
            tracing::warn!(section, "this change takes effect after a restart");
        }
        tracing::info!("configuration reloaded");
        Ok(())
    }

    /// The service's own sections that differ from those at the start and that it does not take while it runs.
    fn changed<'a>(&'a self, new: &'a BTreeMap<String, u64>) -> impl Iterator<Item = &'a str> {
        let names: BTreeSet<&str> = self.sections.keys().chain(new.keys()).map(String::as_str).collect();
        let taken = |section: &str| SHARED.iter().chain(self.live).any(|live| same_key(live, section));
        names.into_iter().filter(move |name| self.sections.get(*name) != new.get(*name) && !taken(name))
    }
}

fn same_but_filter(old: &TelemetryConfig, new: &TelemetryConfig) -> bool {
    *old == TelemetryConfig { filter: old.filter.clone(), ..new.clone() }
}

/// Reads the configuration again on each SIGHUP, until shutdown.
pub(crate) fn on_hangup<S: Service>(
    file: Option<PathBuf>,
    ctx: &Context<S::Config>,
    reload: Reload<S::Config>,
    mut hangup: Signal,
) {
    let shutdown = ctx.shutdown.clone();
    ctx.tasks.spawn(async move {
        let serve = async {
            while hangup.recv().await.is_some() {
                // A refusal is logged inside.
                let _ = reload.apply(run::read::<S>(file.as_ref()));
            }
        };
        shutdown.run_until_cancelled(serve).await;
    });
}
