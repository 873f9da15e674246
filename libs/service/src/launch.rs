//! A service inside a test's process, with its real address and a way to stop it.
//!
//! It starts as the real main function does, from the configuration's text on, but without signals and exit codes.

use std::{net::SocketAddr, sync::Arc};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    Service,
    config::{ConfigErrors, Reader},
    error::StartError,
    reload::Reload,
    run,
};

/// A service that runs in this process. Dropping it asks the service to stop.
pub struct Running<S: Service> {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: Option<JoinHandle<Result<(), StartError>>>,
    reload: Reload<S::Config>,
}

impl<S: Service> std::fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("service", &S::NAME)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Starts a service from a TOML text and waits until it has its port. Use `listen = "127.0.0.1:0"` for a free one.
pub async fn launch<S: Service>(text: &str) -> Result<Running<S>, StartError> {
    let loaded = run::load::<S>(Reader::parse(S::NAME, None, text, [])?)?;
    let telemetry = Arc::new(telemetry::init(&loaded.common.telemetry)?);
    let shutdown = CancellationToken::new();
    let (sender, config) = watch::channel(Arc::new(loaded.own));
    let ctx = run::prepare::<S>(Arc::new(loaded.common), config, shutdown.clone()).await?;
    let reload = Reload::new::<S>(&ctx, sender, telemetry, loaded.sections);
    let mut address = ctx.address.subscribe();
    let task = tokio::spawn(run::run::<S>(ctx));
    // The sender is dropped with the service, so this also ends when the service does; then its task has the reason.
    let bound = address.wait_for(Option::is_some).await.ok().and_then(|address| *address);
    match bound {
        Some(address) => Ok(Running { address, shutdown, task: Some(task), reload }),
        None => {
            task.await.map_err(|error| StartError::Service(error.into()))??;
            Err(StartError::Service("the service ended before it had a port".into()))
        }
    }
}

impl<S: Service> Running<S> {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What SIGHUP does, with a text instead of the file.
    pub fn reload(&self, text: &str) -> Result<(), ConfigErrors> {
        self.reload.apply(Reader::parse(S::NAME, None, text, []).and_then(run::load::<S>))
    }

    /// What SIGTERM does, and how it ended.
    pub async fn stop(self) -> Result<(), StartError> {
        self.shutdown.cancel();
        self.ended().await
    }

    /// Waits until the service ends by itself.
    pub async fn ended(mut self) -> Result<(), StartError> {
        match self.task.take() {
            Some(task) => task.await.map_err(|error| StartError::Service(error.into()))?,
            None => Ok(()),
        }
    }
}

impl<S: Service> Drop for Running<S> {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
