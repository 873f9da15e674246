//! WorkerService.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use ::worker::WorkerId;
use futures::Stream;
use proto::time;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::worker_service_server::WorkerService;
use rpc::Draining;
use rpc::error::{self, reason};
use rpc::fields::{self, Fields};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::fleet::view::{Status as WorkerStatus, View, WorkerView};
use crate::fleet::{Fleet, FleetError};
use crate::orchestrator::WorkerCommand;
use crate::spec::{Spec, file};

/// Reasons of refusals; programs may match on these.
const IN_FILE: &str = "WORKER_IN_FILE";
const NOT_LEADING: &str = "NOT_LEADING";
const NO_FILE: &str = "NO_WORKER_FILE";
const FILE_REFUSED: &str = "WORKER_FILE_REFUSED";
/// Replaces every value of a worker's environment in responses, because passwords and keys are passed there.
const HIDDEN: &str = "(hidden)";
/// Messages buffered for a slow watcher.
const WATCH_BUFFER: usize = 256;

/// Without a fleet, every method is refused.
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

    async fn command(&self, command: WorkerCommand, id: &str) -> Result<Option<pb::Worker>, Status> {
        let fleet = self.fleet()?;
        let worker = fleet.command(command, fields::parse("id", id)?).await?;
        Ok(Some(show(&worker)))
    }
}

type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchWorkersResponse, Status>> + Send>>;

#[tonic::async_trait]
impl WorkerService for WorkerRpc {
    type WatchWorkersStream = WatchStream;

    async fn list_workers(
        &self,
        _: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersResponse>, Status> {
        let workers = self.fleet()?.view().workers.values().map(|worker| show(worker)).collect();
        Ok(Response::new(pb::ListWorkersResponse { workers }))
    }

    async fn get_worker(
        &self,
        request: Request<pb::GetWorkerRequest>,
    ) -> Result<Response<pb::GetWorkerResponse>, Status> {
        let worker = self.fleet()?.get(&fields::parse("id", &request.get_ref().id)?)?;
        Ok(Response::new(pb::GetWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn watch_workers(
        &self,
        request: Request<pb::WatchWorkersRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        let (fleet, draining) = (self.fleet()?.clone(), Draining::of(&request));
        let (sender, receiver) = mpsc::channel(WATCH_BUFFER);
        tokio::spawn(watch(fleet, draining, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn start_worker(
        &self,
        request: Request<pb::StartWorkerRequest>,
    ) -> Result<Response<pb::StartWorkerResponse>, Status> {
        let fleet = self.fleet()?;
        let spec = fields::required("spec", request.into_inner().spec)?;
        // An id alone starts a worker that exists; anything more defines a worker.
        let by_id = spec.command.is_empty() && spec.environment.is_empty() && spec.interval.is_none();
        let worker = if by_id {
            fleet.command(WorkerCommand::Start, fields::parse("spec.id", &spec.id)?).await?
        } else {
            fleet.add(parse_spec(spec)?).await?
        };
        Ok(Response::new(pb::StartWorkerResponse { worker: Some(show(&worker)) }))
    }

    async fn stop_worker(
        &self,
        request: Request<pb::StopWorkerRequest>,
    ) -> Result<Response<pb::StopWorkerResponse>, Status> {
        let worker = self.command(WorkerCommand::Stop, &request.get_ref().id).await?;
        Ok(Response::new(pb::StopWorkerResponse { worker }))
    }

    async fn restart_worker(
        &self,
        request: Request<pb::RestartWorkerRequest>,
    ) -> Result<Response<pb::RestartWorkerResponse>, Status> {
        let worker = self.command(WorkerCommand::Restart, &request.get_ref().id).await?;
        Ok(Response::new(pb::RestartWorkerResponse { worker }))
    }

    async fn remove_worker(
        &self,
        request: Request<pb::RemoveWorkerRequest>,
    ) -> Result<Response<pb::RemoveWorkerResponse>, Status> {
        let worker = self.command(WorkerCommand::Remove, &request.get_ref().id).await?;
        Ok(Response::new(pb::RemoveWorkerResponse { worker }))
    }

    async fn reload_config(
        &self,
        _: Request<pb::ReloadConfigRequest>,
    ) -> Result<Response<pb::ReloadConfigResponse>, Status> {
        let changes = self.fleet()?.reload().await?;
        let names = |ids: Vec<WorkerId>| ids.iter().map(ToString::to_string).collect();
        Ok(Response::new(pb::ReloadConfigResponse {
            added: names(changes.added),
            removed: names(changes.removed),
            changed: names(changes.changed),
        }))
    }

    async fn get_orchestrator(
        &self,
        _: Request<pb::GetOrchestratorRequest>,
    ) -> Result<Response<pb::GetOrchestratorResponse>, Status> {
        let view = self.fleet()?.view();
        let (orchestrator, count) = (&view.orchestrator, |n: usize| u32::try_from(n).unwrap_or(u32::MAX));
        Ok(Response::new(pb::GetOrchestratorResponse {
            incarnation: orchestrator.incarnation.clone(),
            leading: orchestrator.leading,
            epoch: orchestrator.epoch,
            started_at: Some(time::timestamp(orchestrator.started_at)),
            last_round: chrono::TimeDelta::from_std(orchestrator.last_round).ok().map(time::duration),
            running: count(view.running()),
            configured: count(view.workers.len()),
        }))
    }
}

/// Sends every worker once, then each one that changes or is removed, until the watcher leaves or the server drains.
async fn watch(
    fleet: Fleet,
    draining: Draining,
    sender: mpsc::Sender<Result<pb::WatchWorkersResponse, Status>>,
) {
    let mut changes = fleet.changes();
    let mut seen = Workers::new();
    loop {
        let view: Arc<View> = Arc::clone(&changes.borrow_and_update());
        for message in differences(&seen, &view.workers) {
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

/// One message for each worker that differs between two views.
fn differences(old: &Workers, new: &Workers) -> Vec<pb::WatchWorkersResponse> {
    let same = |id: &WorkerId, worker: &Arc<WorkerView>| {
        old.get(id).is_some_and(|old| Arc::ptr_eq(old, worker) || old == worker)
    };
    let changed = new.iter().filter(|(id, worker)| !same(id, worker));
    let changed = changed.map(|(_, worker)| (Arc::clone(worker), false));
    let gone = old.iter().filter(|(id, _)| !new.contains_key(*id)).map(|(_, last)| (ended(last), true));
    let message = |(worker, removed): (Arc<WorkerView>, bool)| pb::WatchWorkersResponse {
        worker: Some(show(&worker)),
        removed,
    };
    changed.chain(gone).map(message).collect()
}

/// A worker after its end; the last view of it may have been taken before that.
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

fn parse_spec(spec: pb::WorkerSpec) -> Result<Spec, Status> {
    let mut fields = Fields::new();
    let parsed = fields.nested("spec", |fields| {
        let id = fields.parse("id", &spec.id);
        let interval = fields.duration("interval", spec.interval.as_ref());
        // A caller that sends back a response means the values it hid; storing the word instead would lose them.
        for (name, _) in spec.environment.iter().filter(|(_, value)| *value == HIDDEN) {
            let problem =
                format!("{name} is `{HIDDEN}`, which is how responses show values; give the value itself");
            fields.wrong("environment", problem);
        }
        let environment = spec.environment.into_iter().collect();
        Some(Spec { id: id?, command: spec.command, environment, interval, enabled: true })
    });
    fields.finish(parsed)
}

pub(crate) fn show(worker: &WorkerView) -> pb::Worker {
    let spec = pb::WorkerSpec {
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
    pb::Worker {
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

fn status(status: WorkerStatus) -> pb::WorkerStatus {
    match status {
        WorkerStatus::Starting => pb::WorkerStatus::Starting,
        WorkerStatus::Running => pb::WorkerStatus::Running,
        WorkerStatus::Silent => pb::WorkerStatus::Silent,
        WorkerStatus::BackingOff => pb::WorkerStatus::BackingOff,
        WorkerStatus::GivenUp => pb::WorkerStatus::GivenUp,
        WorkerStatus::Stopped => pb::WorkerStatus::Stopped,
        WorkerStatus::Stopping => pb::WorkerStatus::Stopping,
    }
}

impl From<FleetError> for Status {
    fn from(error: FleetError) -> Self {
        let soon = std::time::Duration::from_secs(1);
        match error {
            FleetError::Unknown(id) => error::not_found("worker", id),
            FleetError::DefinedInFile(_) => error::already_exists(IN_FILE, "spec.id", error.to_string()),
            FleetError::RemovableInFileOnly(_) => error::failed_precondition(IN_FILE, error.to_string()),
            FleetError::Invalid(mistakes) => error::invalid_all(
                mistakes.into_iter().map(|(field, problem)| (format!("spec.{field}"), problem)),
            ),
            FleetError::File(mistakes) => {
                let text = format!(
                    "the worker file is refused, the old one stays in effect: {}",
                    file::summary(&mistakes)
                );
                let facts: Vec<(&str, &str)> =
                    mistakes.iter().map(|(at, what)| (at.as_str(), what.as_str())).collect();
                error::refusal(tonic::Code::FailedPrecondition, FILE_REFUSED, text, &facts)
            }
            FleetError::NoFile => error::failed_precondition(NO_FILE, error.to_string()),
            FleetError::NotLeading => error::unavailable(NOT_LEADING, error.to_string(), soon),
            FleetError::Store(ref store) => service::database_status(&error, store.fault()),
            FleetError::Redis(_) => {
                tracing::warn!(error = error::chain(&error), "a command failed");
                error::unavailable(reason::DEPENDENCY_UNAVAILABLE, error.to_string(), soon)
            }
            FleetError::Stopped => error::unavailable(reason::DRAINING, error.to_string(), soon),
        }
    }
}
