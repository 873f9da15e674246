//! What a running service is given: its settings, its database, its server and its background tasks.
//!
//! Owns the tasks that a service starts beside its server. Invariant: a task that fails, panics or ends early stops the whole
//! service, because a service without one of its loops would look healthy and do nothing.

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use rpc::Auth;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::{BoxError, StartError},
    run::Common,
};

/// Clones share everything.
pub struct Context<C> {
    pub(crate) name: &'static str,
    pub(crate) common: Arc<Common>,
    pub(crate) config: watch::Receiver<Arc<C>>,
    pub(crate) auth: Auth,
    pub(crate) pool: Option<PgPool>,
    /// For the health check alone. Through the service's own pool a moment of full load would look like a lost database.
    pub(crate) probe: Option<PgPool>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) failure: Arc<Mutex<Option<StartError>>>,
    pub(crate) address: Arc<watch::Sender<Option<SocketAddr>>>,
}

impl<C> Clone for Context<C> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            common: Arc::clone(&self.common),
            config: self.config.clone(),
            auth: self.auth.clone(),
            pool: self.pool.clone(),
            probe: self.probe.clone(),
            shutdown: self.shutdown.clone(),
            tasks: self.tasks.clone(),
            failure: Arc::clone(&self.failure),
            address: Arc::clone(&self.address),
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for Context<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<C: Send + Sync + 'static> Context<C> {
    /// The service's settings as they are now.
    pub fn config(&self) -> Arc<C> {
        Arc::clone(&self.config.borrow())
    }

    /// The settings as they change: each valid reload (SIGHUP) is one new value.
    pub fn config_changes(&self) -> watch::Receiver<Arc<C>> {
        self.config.clone()
    }

    /// The sections that all services share, as they were at start.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The service's database.
    ///
    /// # Panics
    /// In a service without migrations, which has none.
    pub fn pool(&self) -> PgPool {
        self.pool
            .clone()
            .expect("a service that names a migrator is connected before it runs; this one names none")
    }

    /// Who may call, for a server beside the service's own. Follows reloads.
    pub fn auth(&self) -> Auth {
        self.auth.clone()
    }

    /// Fires when the service is to stop.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// A server with the configured address, callers and limits, and a critical health check `database` if there is one.
    pub fn server(&self) -> rpc::Server {
        self.server_at(self.common.server.listen)
    }

    /// The same on another address, for a process that only works and shows no more than health and `/metrics`.
    pub fn server_at(&self, listen: SocketAddr) -> rpc::Server {
        let config = rpc::ServerConfig { listen, ..self.common.server.clone() };
        let server = rpc::Server::new(config).auth(self.auth.clone());
        match self.probe.clone() {
            None => server,
            Some(pool) => server.check("database", true, move || {
                let pool = pool.clone();
                async move { db::ping(&pool).await }
            }),
        }
    }

    /// Binds and serves until the service is to stop, then drains.
    pub async fn serve(&self, server: rpc::Server) -> Result<(), BoxError> {
        let bound = server.bind().await?;
        self.address.send_replace(Some(bound.local_addr()));
        bound.serve(self.shutdown.clone()).await;
        Ok(())
    }

    /// Starts a task that lives as long as the service. It gets a token that fires at shutdown and must end soon after.
    /// When it fails, panics or ends before that, the service stops with exit code 1.
    pub fn spawn<F, Fut, E>(&self, name: impl Into<String>, task: F)
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let name = name.into();
        let handle = tokio::spawn(task(self.shutdown.child_token()));
        let (shutdown, failure) = (self.shutdown.clone(), Arc::clone(&self.failure));
        self.tasks.spawn(async move {
            let ended: Result<(), BoxError> = match handle.await {
                Ok(Ok(())) if shutdown.is_cancelled() => Ok(()),
                Ok(Ok(())) => Err("it ended although nothing had asked it to".into()),
                Ok(Err(error)) => Err(error.into()),
                Err(error) => Err(error.into()),
            };
            match ended {
                Ok(()) => tracing::debug!(task = name, "task ended"),
                Err(source) => {
                    tracing::error!(task = name, error = &*source as &dyn std::error::Error, "task failed");
                    let mut slot = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    // The first failure is the cause; later ones usually follow from it.
                    slot.get_or_insert(StartError::Task { name, source });
                    shutdown.cancel();
                }
            }
        });
    }

    pub(crate) fn take_failure(&self) -> Option<StartError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
