//! The API's side of the fleet: [`Fleet`] reads the last view of all workers and sends commands to the orchestrator's loop.

pub(crate) mod view;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use worker::WorkerId;

use crate::orchestrator::{Changes, FleetCommand, Reply, WorkerCommand};
use crate::spec::repo::RepoError;
use crate::spec::{Mistake, Spec, file};
use view::{View, WorkerView};

/// Why a command was refused. Nothing changed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error("there is no worker {0}")]
    Unknown(WorkerId),
    #[error("{0} is defined in the worker file; change it there and reload")]
    DefinedInFile(WorkerId),
    #[error("{0} is defined in the worker file; remove it there and reload")]
    RemovableInFileOnly(WorkerId),
    #[error("the worker's specification is not valid")]
    Invalid(Vec<Mistake>),
    #[error("the worker file is refused; the old one stays in effect")]
    File(Vec<Mistake>),
    #[error("no worker file is configured")]
    NoFile,
    #[error("this orchestrator does not lead now, so it changes nothing")]
    NotLeading,
    #[error("the command cannot be stored")]
    Store(#[from] RepoError),
    #[error("Redis does not answer")]
    Redis(#[from] worker::redis::RedisError),
    #[error("the orchestrator has stopped")]
    Stopped,
}

/// A handle to the orchestrator. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    commands: mpsc::Sender<FleetCommand>,
    view: watch::Receiver<Arc<View>>,
}

impl Fleet {
    pub(crate) fn new(commands: mpsc::Sender<FleetCommand>, view: watch::Receiver<Arc<View>>) -> Self {
        Self { commands, view }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    pub(crate) fn get(&self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.view().workers.get(id).cloned().ok_or_else(|| FleetError::Unknown(id.clone()))
    }

    /// Carries out a command about a worker that exists.
    pub(crate) async fn command(
        &self,
        command: WorkerCommand,
        id: WorkerId,
    ) -> Result<Arc<WorkerView>, FleetError> {
        self.send(|reply| FleetCommand::Worker { command, id, reply }).await
    }

    /// Adds a worker, or replaces one that was added before, and lets it run.
    pub(crate) async fn add(&self, spec: Spec) -> Result<Arc<WorkerView>, FleetError> {
        let mistakes = spec.mistakes();
        if !mistakes.is_empty() {
            return Err(FleetError::Invalid(mistakes));
        }
        self.send(|reply| FleetCommand::Add { spec, reply }).await
    }

    /// Reads the worker file again. The error holds every mistake in it; the old one stays in effect then.
    pub(crate) async fn reload(&self) -> Result<Changes, FleetError> {
        let path = self.view().orchestrator.workers_file.clone().ok_or(FleetError::NoFile)?;
        let read = tokio::task::spawn_blocking(move || file::read(&path)).await;
        let specs = read.map_err(|_| FleetError::Stopped)?.map_err(FleetError::File)?;
        self.send(|reply| FleetCommand::Reload { specs, reply }).await
    }

    async fn send<T>(&self, command: impl FnOnce(Reply<T>) -> FleetCommand) -> Result<T, FleetError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| FleetError::Stopped)?;
        answer.await.map_err(|_| FleetError::Stopped)?
    }
}
