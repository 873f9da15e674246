//! The signer gateway: the only process that holds keys. It builds what it signs, judges every request by rules of its
//! own, and records every decision. This file is wiring only; each noun has a module.
//!
//! Invariants, as absences: no route to a chain node, no signature for a refused request, no answer before its commit,
//! no key in a log, a row or an error.

/// Gives types that hold secrets a `Debug` that shows their name only.
macro_rules! redact_debug {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )+};
}

pub mod audit;
pub mod builder;
pub mod config;
pub mod freeze;
pub mod group;
pub mod guard;
pub mod keys;
pub mod policy;
pub mod rpc;
pub mod seal;
pub mod signing;
pub mod wallet;

use std::sync::Arc;
use std::time::Duration;

use proto::signer::v1::signer_service_server::SignerServiceServer;
use service::BoxError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::group::Groups;

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations/signer-gateway");

/// How often a start with an unseal key is retried while its database is unavailable.
const UNSEAL_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct SignerGateway;

impl service::Service for SignerGateway {
    const NAME: &'static str = "signer-gateway";
    const LIVE: &'static [&'static str] = &["policy", "chains"];
    type Config = Config;

    fn read(reader: &service::config::Reader) -> Option<Config> {
        Config::read(reader)
    }

    fn migrator() -> Option<&'static sqlx::migrate::Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: service::Context<Config>) -> Result<(), BoxError> {
        let config = ctx.config();
        let policy = signing::PolicySource::new(ctx.config_changes());
        let groups = Arc::new(Groups::new(ctx.pool(), config.seal));
        let (gateway, ledger) =
            rpc::Gateway::new(ctx.pool(), Arc::clone(&groups), policy, config.ledger_timeout);
        // The ledger does not stop at the service's own signal, because calls are still answered for a while after that. It stops
        // when this function ends, which is after the last call was answered.
        let answered = CancellationToken::new();
        let _answered = answered.clone().drop_guard();
        ctx.spawn("ledger", |stop| async move {
            ledger.run(answered).await?;
            // When a start fails the ledger ends first; that is not a failure of the ledger.
            stop.cancelled().await;
            Ok::<(), signing::LedgerStopped>(())
        });
        let freezes = gateway.freezes();
        ctx.spawn("freezes", |stop| freezes.report(stop));
        warn_if_open(&config);
        let changes = ctx.config_changes();
        ctx.spawn("policy reload", |stop| announce(changes, stop));
        if let Some(key) = &config.unseal_key {
            let key = Zeroizing::new(key.expose().to_owned());
            unseal_at_start(&groups, key, &ctx.shutdown()).await?;
        }
        let sealed = Arc::clone(&groups);
        let server = ctx
            .server()
            // Not critical: a gateway is sealed on purpose, and still lists and verifies.
            .check("seal", false, move || {
                let sealed = sealed.is_sealed();
                async move { if sealed { Err("sealed") } else { Ok(()) } }
            })
            .service(SignerServiceServer::new(gateway));
        ctx.serve(server).await
    }
}

/// Logs when the rules were replaced. They are in force as soon as the settings are.
async fn announce(
    mut changes: watch::Receiver<Arc<Config>>,
    stop: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
        let config = Arc::clone(&changes.borrow_and_update());
        tracing::info!(chains = config.policy.chains.len(), "signing policy replaced");
        warn_if_open(&config);
    }
    Ok(())
}

/// Without the list, whoever has an operator's key can import a group of their own and have everything swept there.
fn warn_if_open(config: &Config) {
    if config.policy.operation_groups.is_none() {
        tracing::warn!(
            "policy.operation_groups is not set: sweeps may go to every operation group that an operator imports, without limit; \
             list the first address (`evm`, index 0) of each group that is yours"
        );
    }
}

/// A wrong key ends the start; while the database is unavailable it is retried.
async fn unseal_at_start(
    groups: &Groups,
    key: Zeroizing<String>,
    stop: &CancellationToken,
) -> Result<(), group::GroupError> {
    loop {
        match groups.unseal("startup", key.clone()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.retry() => {
                tracing::warn!(error = %::rpc::error::chain(&error), "cannot unseal yet");
                if stop.run_until_cancelled(tokio::time::sleep(UNSEAL_RETRY)).await.is_none() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}
