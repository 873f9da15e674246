//! WorkerService.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use ::worker::WorkerId;
use futures::Stream;
use proto::time;
use proto::workercontrol::v1 as wire;
use proto::workercontrol::v1::worker_service_server::WorkerService;
use rpc::Draining;
use rpc::error::{self, reason};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::fleet::file;
use crate::fleet::spec::Spec;
use crate::fleet::{Fleet, FleetError, Status as WorkerStatus, View, WorkerView};

/// Why an order is refused; programs may match on these.
const IN_FILE: &str = "WORKER_IN_FILE";
const NOT_LEADING: &str = "NOT_LEADING";
const NO_FILE: &str = "NO_WORKER_FILE";
const FILE_REFUSED: &str = "WORKER_FILE_REFUSED";
/// Stands for every value of a worker's environment in answers: passwords and keys are given that way.
const HIDDEN: &str = "(hidden)";
/// Messages that wait for a slow watcher before it is made to wait itself.
const WAITING: usize = 256;

/// Answers about workers. Without a fleet, every call is refused.
#[derive(Debug, Clone)]
pub(crate) struct WorkerRpc {
    fleet: Option<Fleet>,
}

impl WorkerRpc {
    pub(crate) fn new(fleet: Option<Fleet>) -> Self {
        Self { fleet }
    }

    fn fleet(&self) -> Result<&Fleet, Status> {
        self.fleet.as_ref().ok_or_else(|| {
            error::failed_precondition(
                NOT_LEADING,
                "this process orchestrates nothing (orchestrator.enabled)",
            )
        })
    }
}

type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchWorkersResponse, Status>> + Send>>;

#[tonic::async_trait]
impl WorkerService for WorkerRpc {
    type WatchWorkersStream = WatchStream;

    async fn list_workers(
        &self,
        _: Request<wire::ListWorkersRequest>,
    ) -> Result<Response<wire::ListWorkersResponse>, Status> {
        let workers = self.fleet()?.view().workers.values().map(|worker| show(worker)).collect();
        Ok(Response::new(wire::ListWorkersResponse { workers }))
    }

    async fn get_worker(
        &self,
        request: Request<wire::GetWorkerRequest>,
    ) -> Result<Response<wire::GetWorkerResponse>, Status> {
        let worker = self.fleet()?.get(&id(&request.get_ref().id)?)?;
        Ok(Response::new(wire::GetWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn watch_workers(
        &self,
        request: Request<wire::WatchWorkersRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        let (fleet, draining) = (self.fleet()?.clone(), Draining::of(&request));
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(watch(fleet, draining, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn start_worker(
        &self,
        request: Request<wire::StartWorkerRequest>,
    ) -> Result<Response<wire::StartWorkerResponse>, Status> {
        let fleet = self.fleet()?;
        let spec = request.into_inner().spec.ok_or_else(|| error::invalid("spec", "is missing"))?;
        // A worker by its id alone; anything more is a whole worker.
        let by_id = spec.command.is_empty() && spec.environment.is_empty() && spec.interval.is_none();
        let worker = if by_id {
            fleet.start(parse_id("spec.id", &spec.id)?).await?
        } else {
            fleet.add(parse_spec(spec)?).await?
        };
        Ok(Response::new(wire::StartWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn stop_worker(
        &self,
        request: Request<wire::StopWorkerRequest>,
    ) -> Result<Response<wire::StopWorkerResponse>, Status> {
        let worker = self.fleet()?.stop(id(&request.get_ref().id)?).await?;
        Ok(Response::new(wire::StopWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn restart_worker(
        &self,
        request: Request<wire::RestartWorkerRequest>,
    ) -> Result<Response<wire::RestartWorkerResponse>, Status> {
        let worker = self.fleet()?.restart(id(&request.get_ref().id)?).await?;
        Ok(Response::new(wire::RestartWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn remove_worker(
        &self,
        request: Request<wire::RemoveWorkerRequest>,
    ) -> Result<Response<wire::RemoveWorkerResponse>, Status> {
        let worker = self.fleet()?.remove(id(&request.get_ref().id)?).await?;
        Ok(Response::new(wire::RemoveWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn reload_config(
        &self,
        _: Request<wire::ReloadConfigRequest>,
    ) -> Result<Response<wire::ReloadConfigResponse>, Status> {
        let changes = self.fleet()?.reload().await?;
        let names = |ids: Vec<WorkerId>| ids.iter().map(ToString::to_string).collect();
        Ok(Response::new(wire::ReloadConfigResponse {
            added: names(changes.added),
            removed: names(changes.removed),
            changed: names(changes.changed),
        }))
    }

    async fn get_orchestrator(
        &self,
        _: Request<wire::GetOrchestratorRequest>,
    ) -> Result<Response<wire::GetOrchestratorResponse>, Status> {
        let view = self.fleet()?.view();
        let (how, count) = (&view.orchestrator, |n: usize| u32::try_from(n).unwrap_or(u32::MAX));
        Ok(Response::new(wire::GetOrchestratorResponse {
            incarnation: how.incarnation.clone(),
            leading: how.leading,
            epoch: how.epoch,
            started_at: Some(time::timestamp(how.started_at)),
            last_round: chrono::TimeDelta::from_std(how.last_round).ok().map(time::duration),
            running: count(view.running()),
            configured: count(view.workers.len()),
        }))
    }
}

/// Sends every worker once, then each as it changes or goes, until the watcher or the server goes.
async fn watch(
    fleet: Fleet,
    draining: Draining,
    sender: mpsc::Sender<Result<wire::WatchWorkersResponse, Status>>,
) {
    let mut changes = fleet.changes();
    let mut seen = Workers::new();
    loop {
        let view: Arc<View> = Arc::clone(&changes.borrow_and_update());
        for message in news(&seen, &view.workers) {
            tokio::select! {
                sent = sender.send(Ok(message)) => if sent.is_err() { return },
                () = draining.begun() => return,
            }
        }
        seen.clone_from(&view.workers);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = draining.begun() => return,
            () = sender.closed() => return,
        }
    }
}

type Workers = BTreeMap<WorkerId, Arc<WorkerView>>;

/// What is different between two moments.
fn news(old: &Workers, new: &Workers) -> Vec<wire::WatchWorkersResponse> {
    let same = |id: &WorkerId, worker: &Arc<WorkerView>| {
        old.get(id).is_some_and(|old| Arc::ptr_eq(old, worker) || old == worker)
    };
    let changed = new.iter().filter(|(id, worker)| !same(id, worker));
    let changed = changed.map(|(_, worker)| (Arc::clone(worker), false));
    let gone = old.iter().filter(|(id, _)| !new.contains_key(*id)).map(|(_, last)| (ended(last), true));
    let message = |(worker, removed): (Arc<WorkerView>, bool)| wire::WatchWorkersResponse {
        worker: Some(show(&worker)),
        removed,
    };
    changed.chain(gone).map(message).collect()
}

/// A worker after its end: the last view of it may be from before.
fn ended(last: &WorkerView) -> Arc<WorkerView> {
    Arc::new(WorkerView {
        wanted: false,
        status: WorkerStatus::Stopped,
        pid: 0,
        incarnation: String::new(),
        next_start_at: None,
        ..last.clone()
    })
}

fn id(text: &str) -> Result<WorkerId, Status> {
    parse_id("id", text)
}

fn parse_id(field: &str, text: &str) -> Result<WorkerId, Status> {
    text.parse().map_err(|error: ::worker::WorkerIdError| error::invalid(field, error.to_string()))
}

fn parse_spec(spec: wire::WorkerSpec) -> Result<Spec, Status> {
    let id =
        spec.id.parse().map_err(|error: ::worker::WorkerIdError| ("spec.id".to_owned(), error.to_string()));
    let interval = spec.interval.as_ref().map(time::span).transpose();
    let interval = interval.map_err(|error| ("spec.interval".to_owned(), error.to_string()));
    // Whoever sends back what an answer showed means the values that it hid, and we would store the word instead.
    let hidden = spec.environment.iter().filter(|(_, value)| *value == HIDDEN).map(|(name, _)| {
        let text = format!("{name} is `{HIDDEN}`, which is how answers show values; give the value itself");
        ("spec.environment".to_owned(), text)
    });
    let hidden: Vec<(String, String)> = hidden.collect();
    match (id, interval, hidden.is_empty()) {
        (Ok(id), Ok(interval), true) => Ok(Spec {
            id,
            command: spec.command,
            environment: spec.environment.into_iter().collect(),
            interval,
            enabled: true,
        }),
        (id, interval, _) => {
            Err(error::invalid_all(id.err().into_iter().chain(interval.err()).chain(hidden)))
        }
    }
}

/// A worker for the wire.
pub(crate) fn show(worker: &WorkerView) -> wire::Worker {
    let spec = wire::WorkerSpec {
        id: worker.spec.id.to_string(),
        command: worker.spec.command.clone(),
        environment: worker.spec.environment.keys().map(|name| (name.clone(), HIDDEN.to_owned())).collect(),
        interval: worker
            .spec
            .interval
            .and_then(|span| chrono::TimeDelta::from_std(span).ok())
            .map(time::duration),
        enabled: worker.wanted,
    };
    wire::Worker {
        spec: Some(spec),
        status: status(worker.status).into(),
        pid: worker.pid,
        starts: worker.starts,
        failures: worker.failures,
        heartbeat_at: worker.heartbeat_at.map(time::timestamp),
        next_start_at: worker.next_start_at.map(time::timestamp),
        state_json: worker.state.clone(),
        last_error: worker.last_error.clone(),
        incarnation: worker.incarnation.clone(),
    }
}

fn status(status: WorkerStatus) -> wire::WorkerStatus {
    match status {
        WorkerStatus::Starting => wire::WorkerStatus::Starting,
        WorkerStatus::Running => wire::WorkerStatus::Running,
        WorkerStatus::Silent => wire::WorkerStatus::Silent,
        WorkerStatus::BackingOff => wire::WorkerStatus::BackingOff,
        WorkerStatus::GivenUp => wire::WorkerStatus::GivenUp,
        WorkerStatus::Stopped => wire::WorkerStatus::Stopped,
        WorkerStatus::Stopping => wire::WorkerStatus::Stopping,
    }
}

impl From<FleetError> for Status {
    fn from(error: FleetError) -> Self {
        let soon = std::time::Duration::from_secs(1);
        match error {
            FleetError::Unknown(id) => error::not_found("worker", id),
            FleetError::InFile(_) => error::already_exists(IN_FILE, "spec.id", error.to_string()),
            FleetError::OfFile(_) => error::failed_precondition(IN_FILE, error.to_string()),
            FleetError::Invalid(mistakes) => error::invalid_all(
                mistakes.into_iter().map(|(field, problem)| (format!("spec.{field}"), problem)),
            ),
            FleetError::File(mistakes) => {
                let text =
                    format!("the worker file is refused, the old one stays: {}", file::tell(&mistakes));
                let facts: Vec<(&str, &str)> =
                    mistakes.iter().map(|(at, what)| (at.as_str(), what.as_str())).collect();
                error::refusal(tonic::Code::FailedPrecondition, FILE_REFUSED, text, &facts)
            }
            FleetError::NoFile => error::failed_precondition(NO_FILE, error.to_string()),
            FleetError::NotLeading => error::unavailable(NOT_LEADING, error.to_string(), soon),
            FleetError::Store(_) | FleetError::Redis(_) => {
                tracing::warn!(error = error::chain(&error), "an order was not carried out");
                error::unavailable(reason::DEPENDENCY_UNAVAILABLE, error.to_string(), soon)
            }
            FleetError::Stopped => error::unavailable(reason::DRAINING, error.to_string(), soon),
        }
    }
}
