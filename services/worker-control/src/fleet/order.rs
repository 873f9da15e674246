//! What operators ask for: start, add, stop, restart, remove, reload.
//!
//! Invariant: a wish is kept in the database before it is followed, so that it outlives the orchestrator; a refused order
//! changes nothing.

use std::sync::Arc;
use std::time::Instant;

use chrono::Utc;
use tokio::sync::oneshot;
use worker::WorkerId;

use super::FleetError;
use super::file;
use super::member::{Member, Phase, Why};
use super::orchestrator::{Orchestrator, Owed};
use super::spec::{Mistake, Source, Spec};
use super::view::WorkerView;

type Reply<T> = oneshot::Sender<Result<T, FleetError>>;

/// What is asked of the loop.
#[derive(Debug)]
pub(crate) enum Order {
    Start { id: WorkerId, reply: Reply<Arc<WorkerView>> },
    Add { spec: Spec, reply: Reply<Arc<WorkerView>> },
    Stop { id: WorkerId, reply: Reply<Arc<WorkerView>> },
    Restart { id: WorkerId, reply: Reply<Arc<WorkerView>> },
    Remove { id: WorkerId, reply: Reply<Arc<WorkerView>> },
    Reload { specs: Vec<Spec>, reply: Reply<Changes> },
}

/// What a reload changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<WorkerId>,
    pub removed: Vec<WorkerId>,
    pub changed: Vec<WorkerId>,
}

impl Orchestrator {
    pub(super) async fn obey(&mut self, order: Order) {
        // An asker that has gone away has the answer in the list of workers.
        match order {
            Order::Start { id, reply } => drop(reply.send(self.order_start(&id).await)),
            Order::Add { spec, reply } => drop(reply.send(self.order_add(spec).await)),
            Order::Stop { id, reply } => drop(reply.send(self.order_stop(&id).await)),
            Order::Restart { id, reply } => drop(reply.send(self.order_restart(&id).await)),
            Order::Remove { id, reply } => drop(reply.send(self.order_remove(&id).await)),
            Order::Reload { specs, reply } => drop(reply.send(self.order_reload(specs).await)),
        }
    }

    /// A new configuration was read without a mistake.
    pub(super) async fn reloaded(&mut self, config: &crate::Config) {
        let Some(new) = &config.orchestrator else {
            tracing::warn!("orchestrator.enabled takes effect after a restart");
            return;
        };
        let same = crate::config::OrchestratorConfig {
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
                tracing::error!(mistakes = file::tell(&mistakes), "workers refused, the old ones stay");
            }
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "workers refused, the old ones stay"
            ),
        }
    }

    /// A worker that is configured, if it is ours to change.
    fn known(&mut self, id: &WorkerId) -> Result<&mut Member, FleetError> {
        if !self.lead.leads() {
            return Err(FleetError::NotLeading);
        }
        self.member(id)
    }

    /// The same after a wish was kept: what is in the database is followed, whoever leads by now.
    fn member(&mut self, id: &WorkerId) -> Result<&mut Member, FleetError> {
        let member = self.members.get_mut(id).filter(|member| !member.removed);
        member.ok_or_else(|| FleetError::Unknown(id.clone()))
    }

    fn shown(&self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        let member = self.members.get(id).ok_or_else(|| FleetError::Unknown(id.clone()))?;
        Ok(Arc::new(member.view(Instant::now(), Utc::now())))
    }

    async fn order_start(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.known(id)?;
        self.wishes.want(id, true).await?;
        self.changed = true;
        let member = self.member(id)?;
        member.wanted = Some(true);
        member.settle(Instant::now());
        member.revive(Instant::now());
        self.shown(id)
    }

    async fn order_add(&mut self, mut spec: Spec) -> Result<Arc<WorkerView>, FleetError> {
        if !self.lead.leads() {
            return Err(FleetError::NotLeading);
        }
        let id = spec.id.clone();
        if self.members.get(&id).is_some_and(|member| member.source == Source::File && !member.removed) {
            return Err(FleetError::InFile(id));
        }
        spec.enabled = true;
        self.wishes.put(&spec).await?;
        self.place(spec, Source::Api, Some(true)).await;
        let member = self.member(&id)?;
        if matches!(member.phase, Phase::GivenUp) {
            // The same again is still a start.
            member.revive(Instant::now());
        }
        self.shown(&id)
    }

    async fn order_stop(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.known(id)?;
        self.wishes.want(id, false).await?;
        self.changed = true;
        let member = self.member(id)?;
        member.wanted = Some(false);
        if member.settle(Instant::now()) {
            self.end(id, Why::Stop).await;
        }
        self.shown(id)
    }

    async fn order_restart(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        let member = self.known(id)?;
        if !member.runs() {
            // A restart of what is stopped on purpose is a start.
            return self.order_start(id).await;
        }
        self.registry.flag_restart(id).await?;
        self.changed = true;
        let member = self.member(id)?;
        member.revive(Instant::now());
        if matches!(member.phase, Phase::Up { .. }) {
            self.end(id, Why::Renew).await;
        }
        self.shown(id)
    }

    async fn order_remove(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        if self.known(id)?.source == Source::File {
            return Err(FleetError::OfFile(id.clone()));
        }
        self.wishes.forget(id).await?;
        self.remove(id).await;
        self.shown(id)
    }

    async fn order_reload(&mut self, specs: Vec<Spec>) -> Result<Changes, FleetError> {
        if !self.lead.leads() {
            return Err(FleetError::NotLeading);
        }
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
        let wishes = self.wishes.all().await?;
        let changes = self.arrange(specs, wishes).await;
        // The set of active workers follows at once, or in the next round in which we lead and Redis answers.
        self.owed = self.owed.max(Owed::Record);
        self.catch_up().await;
        Ok(changes)
    }
}
