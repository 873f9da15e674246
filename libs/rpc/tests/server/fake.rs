//! A worker service that does what a test tells it to, and a running server around it.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use proto::workercontrol::v1::{
    self as pb,
    worker_service_client::WorkerServiceClient,
    worker_service_server::{WorkerService, WorkerServiceServer},
};
use rpc::{
    Auth, AuthConfig, Client, ClientConfig, Draining, Role, Secret, Server, ServerConfig,
    auth::{KeyConfig, new_key},
    server::HealthConfig,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(crate) const SERVICE: &str = "bursar.workercontrol.v1.WorkerService";

/// What the next call does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Refuse(Status),
    Hang,
    Panic,
}

/// What happened and what is to happen.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) acts: Mutex<VecDeque<Act>>,
    pub(crate) calls: AtomicU32,
    pub(crate) open_streams: AtomicU32,
    pub(crate) released: CancellationToken,
    pub(crate) caller: Mutex<Option<String>>,
    pub(crate) trace: Mutex<Option<String>>,
    pub(crate) deadline: Mutex<Option<String>>,
}

impl Script {
    pub(crate) fn then(&self, act: Act) {
        self.acts.lock().unwrap().push_back(act);
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn perform<T, R: Default>(&self, request: &Request<T>) -> Result<Response<R>, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        *self.caller.lock().unwrap() = Some(rpc::caller(request)?.name.clone());
        *self.trace.lock().unwrap() = telemetry::propagation::current().trace_id();
        *self.deadline.lock().unwrap() =
            request.metadata().get("grpc-timeout").map(|value| value.to_str().unwrap().to_owned());
        let act = self.acts.lock().unwrap().pop_front();
        match act {
            None => Ok(Response::new(R::default())),
            Some(Act::Refuse(status)) => Err(status),
            Some(Act::Panic) => panic!("the script says so"),
            Some(Act::Hang) => {
                self.released.cancelled().await;
                Ok(Response::new(R::default()))
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Fake(pub(crate) Arc<Script>);

struct Open(Arc<Script>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_streams.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl WorkerService for Fake {
    type WatchWorkersStream = Pin<Box<dyn Stream<Item = Result<pb::WatchWorkersResponse, Status>> + Send>>;

    async fn list_workers(
        &self,
        request: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn get_worker(
        &self,
        request: Request<pb::GetWorkerRequest>,
    ) -> Result<Response<pb::GetWorkerResponse>, Status> {
        self.0.perform(&request).await
    }

    /// One worker at once; another, and the end, when the server drains.
    async fn watch_workers(
        &self,
        request: Request<pb::WatchWorkersRequest>,
    ) -> Result<Response<Self::WatchWorkersStream>, Status> {
        self.0.open_streams.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.0));
        let draining = Draining::of(&request);
        let first = stream::iter([Ok(pb::WatchWorkersResponse::default())]);
        let last = stream::once(async move {
            let _open = open;
            draining.begun().await;
            Ok(pb::WatchWorkersResponse::default())
        });
        Ok(Response::new(first.chain(last).boxed()))
    }

    async fn start_worker(
        &self,
        request: Request<pb::StartWorkerRequest>,
    ) -> Result<Response<pb::StartWorkerResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn stop_worker(
        &self,
        request: Request<pb::StopWorkerRequest>,
    ) -> Result<Response<pb::StopWorkerResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn restart_worker(
        &self,
        request: Request<pb::RestartWorkerRequest>,
    ) -> Result<Response<pb::RestartWorkerResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn remove_worker(
        &self,
        request: Request<pb::RemoveWorkerRequest>,
    ) -> Result<Response<pb::RemoveWorkerResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn reload_config(
        &self,
        request: Request<pb::ReloadConfigRequest>,
    ) -> Result<Response<pb::ReloadConfigResponse>, Status> {
        self.0.perform(&request).await
    }

    async fn get_orchestrator(
        &self,
        request: Request<pb::GetOrchestratorRequest>,
    ) -> Result<Response<pb::GetOrchestratorResponse>, Status> {
        self.0.perform(&request).await
    }
}

/// A configuration for any free port, with checks that do not keep a test waiting.
pub(crate) fn config() -> ServerConfig {
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
    config.health = HealthConfig { interval_ms: 20, timeout_ms: 500 };
    config
}

/// A running server with an operator's and a requester's key.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Script>,
    pub(crate) operator: Secret,
    pub(crate) requester: Secret,
    pub(crate) auth: Auth,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<()>,
}

pub(crate) async fn start(config: ServerConfig) -> Running {
    start_with(config, AuthConfig::default(), |server| server).await
}

pub(crate) async fn start_with(
    config: ServerConfig,
    mut callers: AuthConfig,
    extend: impl FnOnce(Server) -> Server,
) -> Running {
    let quiet =
        telemetry::TelemetryConfig { filter: "off".into(), ..telemetry::TelemetryConfig::new("rpc-test") };
    telemetry::init(&quiet).unwrap();
    let script = Arc::new(Script::default());
    let (operator, operator_hash) = new_key();
    let (requester, requester_hash) = new_key();
    callers.keys.push(KeyConfig { name: "ops".into(), sha256: operator_hash, roles: vec![Role::Operator] });
    callers.keys.push(KeyConfig {
        name: "shop".into(),
        sha256: requester_hash,
        roles: vec![Role::Requester],
    });
    let auth = Auth::new(&callers).unwrap();
    let server =
        Server::new(config).auth(auth.clone()).service(WorkerServiceServer::new(Fake(Arc::clone(&script))));
    let bound = extend(server).bind().await.unwrap();
    let address = bound.local_addr();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(bound.serve(shutdown.clone()));
    Running { address, script, operator, requester, auth, shutdown, served }
}

impl Running {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn config(&self, key: &Secret) -> ClientConfig {
        ClientConfig::new(self.url()).with_key(key.clone())
    }

    pub(crate) fn client(&self) -> WorkerServiceClient<Client> {
        self.client_with(self.config(&self.operator))
    }

    pub(crate) fn client_with(&self, config: ClientConfig) -> WorkerServiceClient<Client> {
        WorkerServiceClient::new(rpc::connect_lazy(&config).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("{}{path}", self.url())).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

/// Polls until `condition` holds; fails the test when it does not within ten seconds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(10), wait).await.is_ok(), "never happened: {what}");
}
