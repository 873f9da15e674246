//! Commands from operators: start, add, stop, restart, remove, reload.
//!
//! Invariants: a command is stored in the database before it is carried out, so that it outlives the orchestrator; a refused
//! command changes nothing.

use std::sync::Arc;
use std::time::Instant;

use chrono::Utc;
use tokio::sync::oneshot;
use worker::WorkerId;

use super::{Orchestrator, PendingWork};
use crate::config::OrchestratorConfig;
use crate::fleet::FleetError;
use crate::fleet::view::WorkerView;
use crate::member::{EndReason, Member, Phase};
use crate::spec::{Mistake, Source, Spec, file};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, FleetError>>;

/// A command about one worker that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCommand {
    /// Lets it run.
    Start,
    /// Stops it and keeps it stopped.
    Stop,
    /// Restarts it at once, without backoff.
    Restart,
    /// Ends a worker that was added over the API, and deletes it.
    Remove,
}

/// A command sent to the orchestrator's loop.
#[derive(Debug)]
pub(crate) enum FleetCommand {
    Worker { command: WorkerCommand, id: WorkerId, reply: Reply<Arc<WorkerView>> },
    Add { spec: Spec, reply: Reply<Arc<WorkerView>> },
    Reload { specs: Vec<Spec>, reply: Reply<Changes> },
}

/// What a reload changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<WorkerId>,
    pub(crate) removed: Vec<WorkerId>,
    pub(crate) changed: Vec<WorkerId>,
}

impl Orchestrator {
    pub(super) async fn execute(&mut self, command: FleetCommand) {
        // A caller that has gone away finds the result in the list of workers.
        match command {
            FleetCommand::Worker { command, id, reply } => {
                drop(reply.send(self.worker_command(command, &id).await));
            }
            FleetCommand::Add { spec, reply } => drop(reply.send(self.add_worker(spec).await)),
            FleetCommand::Reload { specs, reply } => drop(reply.send(self.reload(specs).await)),
        }
    }

    async fn worker_command(
        &mut self,
        command: WorkerCommand,
        id: &WorkerId,
    ) -> Result<Arc<WorkerView>, FleetError> {
        self.must_lead()?;
        let member = self.known(id)?;
        match command {
            // Restarting a worker that was stopped on purpose is starting it.
            WorkerCommand::Restart if !member.runs() => self.start_worker(id).await?,
            WorkerCommand::Start => self.start_worker(id).await?,
            WorkerCommand::Stop => self.stop_worker(id).await?,
            WorkerCommand::Restart => self.restart_worker(id).await?,
            WorkerCommand::Remove if member.source == Source::File => {
                return Err(FleetError::RemovableInFileOnly(id.clone()));
            }
            WorkerCommand::Remove => {
                self.repo.delete(id).await?;
                self.remove(id).await;
            }
        }
        self.shown(id)
    }

    /// The configuration was read again without a mistake.
    pub(super) async fn config_changed(&mut self, config: &crate::Config) {
        let Some(new) = &config.orchestrator else {
            tracing::warn!("orchestrator.enabled takes effect after a restart");
            return;
        };
        let same = OrchestratorConfig {
            workers: self.config.workers.clone(),
            workers_file: self.config.workers_file.clone(),
            ..new.clone()
        };
        if same != *self.config {
            tracing::warn!(section = "orchestrator", "this change takes effect after a restart");
        }
        match self.apply(new.workers.clone()).await {
            Ok(changes) => {
                self.workers_file.clone_from(&new.workers_file);
                tracing::info!(
                    added = changes.added.len(),
                    removed = changes.removed.len(),
                    changed = changes.changed.len(),
                    "workers reloaded"
                );
            }
            Err(FleetError::File(mistakes)) => {
                tracing::error!(mistakes = file::summary(&mistakes), "workers refused, the old ones stay");
            }
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "workers refused, the old ones stay"
            ),
        }
    }

    fn must_lead(&self) -> Result<(), FleetError> {
        if self.lead.leads() { Ok(()) } else { Err(FleetError::NotLeading) }
    }

    /// A configured worker. After a command was stored it is followed even if another orchestrator leads by then, so the
    /// lock is not checked again here.
    fn known(&mut self, id: &WorkerId) -> Result<&mut Member, FleetError> {
        let member = self.members.get_mut(id).filter(|member| !member.removed);
        member.ok_or_else(|| FleetError::Unknown(id.clone()))
    }

    fn shown(&self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        let member = self.members.get(id).ok_or_else(|| FleetError::Unknown(id.clone()))?;
        Ok(Arc::new(member.view(Instant::now(), Utc::now())))
    }

    async fn start_worker(&mut self, id: &WorkerId) -> Result<(), FleetError> {
        self.repo.set_wanted(id, true).await?;
        self.changed = true;
        let member = self.known(id)?;
        member.wanted = Some(true);
        member.reconcile(Instant::now());
        member.start_now(Instant::now());
        Ok(())
    }

    async fn stop_worker(&mut self, id: &WorkerId) -> Result<(), FleetError> {
        self.repo.set_wanted(id, false).await?;
        self.changed = true;
        let member = self.known(id)?;
        member.wanted = Some(false);
        if member.reconcile(Instant::now()) {
            self.end(id, EndReason::Stop).await;
        }
        Ok(())
    }

    async fn restart_worker(&mut self, id: &WorkerId) -> Result<(), FleetError> {
        self.registry.flag_restart(id).await?;
        self.changed = true;
        let member = self.known(id)?;
        member.start_now(Instant::now());
        if matches!(member.phase, Phase::Up { .. }) {
            self.end(id, EndReason::Restart).await;
        }
        Ok(())
    }

    async fn add_worker(&mut self, mut spec: Spec) -> Result<Arc<WorkerView>, FleetError> {
        self.must_lead()?;
        let id = spec.id.clone();
        if self.members.get(&id).is_some_and(|member| member.source == Source::File && !member.removed) {
            return Err(FleetError::DefinedInFile(id));
        }
        spec.enabled = true;
        self.repo.put(&spec).await?;
        self.place(spec, Source::Api, Some(true)).await;
        let member = self.known(&id)?;
        if matches!(member.phase, Phase::GivenUp) {
            // Adding an unchanged worker that was given up is a request to start it.
            member.start_now(Instant::now());
        }
        self.shown(&id)
    }

    async fn reload(&mut self, specs: Vec<Spec>) -> Result<Changes, FleetError> {
        self.must_lead()?;
        self.apply(specs).await
    }

    /// Takes the workers of a file: all of them, or none.
    async fn apply(&mut self, specs: Vec<Spec>) -> Result<Changes, FleetError> {
        let taken: Vec<Mistake> = specs
            .iter()
            .filter(|spec| self.members.get(&spec.id).is_some_and(|m| m.source == Source::Api && !m.removed))
            .map(|spec| (spec.id.to_string(), "was added over the API already".to_owned()))
            .collect();
        if !taken.is_empty() {
            return Err(FleetError::File(taken));
        }
        let desired = self.repo.all().await?;
        let changes = self.arrange(specs, desired).await;
        // The set of active workers follows at once, or in the next round in which we lead and Redis answers.
        self.pending = self.pending.max(PendingWork::Record);
        self.catch_up().await;
        Ok(changes)
    }
}
