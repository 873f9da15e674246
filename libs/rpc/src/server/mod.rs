//! The server: one port for gRPC, `/metrics`, `/livez`, `/readyz` and any plain HTTP routes of the service.
//!
//! Owns the order of start and stop. Start: bind, then check dependencies, and be SERVING only when the critical ones have
//! answered. Stop: report NOT_SERVING, stop accepting, notify streams, wait for what is in flight up to a limit, then drop it.
//! It never exits the process and never installs signal handlers.

mod check;
mod config;
mod conn;
mod health;
mod ops;

use std::{convert::Infallible, fmt, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{body::Body, server::NamedService, service::Routes};
use tower::Service;

use self::check::{Check, CheckGroup};
pub use self::config::{Limits, ServerConfig, ServerError};
pub use self::health::{CheckReport, Health, HealthConfig, Report};
use crate::{
    auth::Auth,
    layer::{
        Layered, Next,
        auth::{Authorize, HttpAuthorize},
        limit::ConcurrencyLimit,
        metrics::{self, Metrics},
        panic::CatchPanic,
        target::Stack,
        timeout::Timeout,
        trace::Trace,
    },
    role::Role,
    tls,
};

/// How long a port may be taken before that is an error: a process that was killed a moment ago may still hold it, and whoever
/// restarts it should not have to wait.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(2);
const RETRY_EVERY: Duration = Duration::from_millis(25);

async fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let until = tokio::time::Instant::now() + PREDECESSOR_LIMIT;
    loop {
        match TcpListener::bind(address).await {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse && tokio::time::Instant::now() < until =>
            {
                tokio::time::sleep(RETRY_EVERY).await;
            }
            bound => return bound,
        }
    }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Tells a handler that the server is going away. Streams should end themselves soon after.
#[derive(Debug, Clone)]
pub struct Draining(Arc<CancellationToken>);

impl Draining {
    /// Behind a count of our own: each request has a copy, and copies of the token itself take turns at a lock.
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self(Arc::new(token))
    }

    pub(crate) fn token(&self) -> CancellationToken {
        CancellationToken::clone(&self.0)
    }

    /// The token of a request's server; one that never fires outside a server.
    #[must_use]
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(|| Self::new(CancellationToken::new()))
    }

    /// Waits until draining begins.
    pub async fn begun(&self) {
        self.0.cancelled().await;
    }
}

/// A server being put together.
pub struct Server {
    config: ServerConfig,
    auth: Auth,
    routes: Routes,
    services: Vec<&'static str>,
    open_http: axum::Router,
    guarded_http: Vec<(Vec<Role>, axum::Router)>,
    checks: Vec<Check>,
    groups: Vec<CheckGroup>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("config", &self.config)
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

impl Server {
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            auth: Auth::default(),
            routes: Routes::default(),
            services: Vec::new(),
            open_http: axum::Router::new(),
            guarded_http: Vec::new(),
            checks: Vec::new(),
            groups: Vec::new(),
        }
    }

    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Adds a gRPC service. Its contract must be among the descriptors, or nobody may call it.
    #[must_use]
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: axum::response::IntoResponse,
        S::Future: Send + 'static,
    {
        self.services.push(S::NAME);
        self.routes = self.routes.add_service(service);
        self
    }

    /// Adds plain HTTP routes that anybody may call.
    #[must_use]
    pub fn http(mut self, router: axum::Router) -> Self {
        self.open_http = self.open_http.merge(router);
        self
    }

    /// Adds plain HTTP routes for callers with one of these roles.
    #[must_use]
    pub fn http_for(mut self, roles: impl IntoIterator<Item = Role>, router: axum::Router) -> Self {
        self.guarded_http.push((roles.into_iter().collect(), router));
        self
    }

    /// Adds a dependency check that runs periodically. It has a health name of its own; while a critical one fails, the
    /// whole server is NOT_SERVING, and it recovers by itself.
    #[must_use]
    pub fn check<F, Fut, E>(mut self, name: impl Into<String>, critical: bool, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        self.checks.push(Check::new(name.into(), critical, check));
        self
    }

    /// Adds a dependency check for each of several things that come and go, such as chains: `members` says which there are,
    /// and each has the health name `group/member` while it is one of them.
    #[must_use]
    pub fn check_each(
        mut self,
        group: impl Into<String>,
        critical: bool,
        members: impl Fn() -> BoxFuture<'static, Result<Vec<String>, String>> + Send + Sync + 'static,
        check: impl Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        self.groups.push(CheckGroup::new(group.into(), critical, Arc::new(members), Arc::new(check)));
        self
    }

    /// Takes the port. Nothing is answered before [`Bound::serve`].
    ///
    /// # Errors
    /// When the port cannot be had or the certificates cannot be used.
    pub async fn bind(self) -> Result<Bound, ServerError> {
        let tls = self.config.tls.as_ref().map(tls::server).transpose()?;
        let listen = self.config.listen;
        let refused = |error: std::io::Error| ServerError::Listen { listen, reason: plain(&error) };
        let listener = listen_at(listen).await.map_err(refused)?;
        let local_addr = listener.local_addr().map_err(refused)?;
        let services: Arc<[&'static str]> = self.services.into();
        let (health, health_service) = Health::new(&services, &self.checks);

        let mut routes = self.routes.add_service(health_service);
        let reflect = || reflection(&services);
        routes = routes.add_service(reflect().build_v1()?).add_service(reflect().build_v1alpha()?);
        let mut router = routes.into_axum_router().reset_fallback().merge(self.open_http);
        for (roles, guarded) in self.guarded_http {
            let authorize = HttpAuthorize { auth: self.auth.clone(), roles: roles.into() };
            router = router.merge(ops::guard(guarded, authorize));
        }
        let router = router.merge(ops::router(health.clone())).fallback(ops::missing);
        Ok(Bound {
            config: self.config,
            auth: self.auth,
            services,
            routes: Routes::from(router).prepare(),
            checks: (self.checks, self.groups),
            health,
            listener,
            local_addr,
            tls,
        })
    }

    /// Binds and serves until `shutdown`, then drains.
    ///
    /// # Errors
    /// When the port cannot be had or the certificates cannot be used.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        self.bind().await?.serve(shutdown).await;
        Ok(())
    }
}

fn reflection<'a>(services: &[&'static str]) -> tonic_reflection::server::Builder<'a> {
    let mut builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection");
    // All contracts are in one set; a server advertises only what it serves.
    for service in services {
        builder = builder.with_service_name(*service);
    }
    builder
}

/// A server that has its port.
pub struct Bound {
    config: ServerConfig,
    auth: Auth,
    services: Arc<[&'static str]>,
    routes: Routes,
    checks: (Vec<Check>, Vec<CheckGroup>),
    health: Health,
    listener: TcpListener,
    local_addr: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Bound {
    /// The address in use, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What health says, for other routes and tests.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Serves until `shutdown`, then drains.
    pub async fn serve(self, shutdown: CancellationToken) {
        telemetry::metrics::install();
        metrics::describe();
        let draining = CancellationToken::new();
        let limits = self.config.limits.clone();
        let stack = stack(self.routes, &limits, self.auth, self.services, draining.clone());
        let health = self.health;
        // Before the first connection: a server must not claim to be SERVING before it has asked its dependencies.
        health.publish().await;
        let background = health::spawn(&health, self.checks, self.config.health, draining.clone());
        let listening = conn::Listening {
            listener: self.listener,
            tls: self.tls,
            connections: limits.connections,
            stop: CancellationToken::new(),
            draining: draining.clone(),
            abort: CancellationToken::new(),
        };
        tracing::info!(listen = %self.local_addr, tls = listening.tls.is_some(), "listening");
        if listening.tls.is_none() && !self.local_addr.ip().is_loopback() {
            tracing::warn!(
                "no server.tls: other machines can reach this port, and API keys travel in plain text"
            );
        }
        let (stop, abort) = (listening.stop.clone(), listening.abort.clone());
        let connections = conn::spawn(listening, stack);

        shutdown.cancelled().await;
        tracing::info!(drain_ms = limits.drain_ms, "draining");
        // NOT_SERVING first: whoever watches must learn it while they can still ask.
        health.drain().await;
        tokio::time::sleep(Duration::from_millis(limits.notice_ms)).await;
        stop.cancel();
        draining.cancel();
        let drained = tokio::time::timeout(Duration::from_millis(limits.drain_ms), connections.wait()).await;
        if drained.is_err() {
            tracing::warn!(open = connections.len(), "drain limit reached, dropping what is left");
            abort.cancel();
            connections.wait().await;
        }
        background.wait().await;
        tracing::info!("stopped serving");
    }
}

fn stack(
    routes: Routes,
    limits: &Limits,
    auth: Auth,
    services: Arc<[&'static str]>,
    draining: CancellationToken,
) -> Stack<impl Next> {
    // From the inside out. The order and its reasons: see `crate::layer`.
    let timed = Layered(Timeout { limit: Duration::from_millis(limits.timeout_ms) }, routes);
    let admitted = Layered(Authorize { auth, services }, Layered(ConcurrencyLimit::new(limits), timed));
    let counted = Layered(Metrics::new(), Layered(CatchPanic, admitted));
    Stack { draining: Draining::new(draining), next: Layered(Trace, counted) }
}
