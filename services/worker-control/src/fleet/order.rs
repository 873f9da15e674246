//! What operators ask for: start, add, stop, restart, reload.
//!
//! Invariant: a wish is kept in the database before it is followed, so that it outlives the orchestrator; a refused order
//! changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use chrono::Utc;
use tokio::sync::oneshot;
use worker::WorkerId;

use super::FleetError;
use super::member::{Member, Phase, Why};
use super::orchestrator::Orchestrator;
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
    Reload { specs: Vec<Spec>, reply: Option<Reply<Changes>> },
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
            Order::Reload { specs, reply } => {
                let result = self.apply(specs).await;
                if let Some(reply) = reply {
                    drop(reply.send(result));
                }
            }
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
            Ok(changes) => tracing::info!(
                added = changes.added.len(),
                removed = changes.removed.len(),
                changed = changes.changed.len(),
                "workers reloaded"
            ),
            Err(FleetError::File(mistakes)) => {
                let mistakes: Vec<String> =
                    mistakes.iter().map(|(at, what)| format!("{at}: {what}")).collect();
                tracing::error!(mistakes = mistakes.join("; "), "workers refused, the old ones stay");
            }
            Err(error) => tracing::error!(error = %error, "workers refused, the old ones stay"),
        }
    }

    fn known(&mut self, id: &WorkerId) -> Result<&mut Member, FleetError> {
        if !self.lead.leads() {
            return Err(FleetError::NotLeading);
        }
        match self.members.get_mut(id).filter(|member| !member.removed) {
            Some(member) => Ok(member),
            None => Err(FleetError::Unknown(id.clone())),
        }
    }

    fn shown(&self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        let member = self.members.get(id).ok_or_else(|| FleetError::Unknown(id.clone()))?;
        Ok(Arc::new(member.view(Instant::now(), Utc::now())))
    }

    async fn order_start(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.known(id)?;
        self.wishes.want(id, true).await?;
        let member = self.known(id)?;
        member.wanted = Some(true);
        member.settle(Instant::now());
        member.revive(Instant::now());
        self.changed = true;
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
        self.shown(&id)
    }

    async fn order_stop(&mut self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.known(id)?;
        self.wishes.want(id, false).await?;
        self.changed = true;
        let member = self.known(id)?;
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
        let member = self.known(id)?;
        member.revive(Instant::now());
        if matches!(member.phase, Phase::Up { .. }) {
            self.end(id, Why::Renew).await;
        }
        self.shown(id)
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
        let mut changes = Changes::default();
        let new: BTreeSet<&WorkerId> = specs.iter().map(|spec| &spec.id).collect();
        let gone: Vec<WorkerId> = self
            .members
            .iter()
            .filter(|(id, member)| member.source == Source::File && !member.removed && !new.contains(id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            if let Some(member) = self.members.get_mut(&id) {
                member.removed = true;
                if member.settle(Instant::now()) {
                    self.end(&id, Why::Stop).await;
                }
            }
            changes.removed.push(id);
        }
        for spec in specs {
            let (id, wanted) = (spec.id.clone(), wishes.get(&spec.id).and_then(|wish| wish.wanted));
            match self.place(spec, Source::File, wanted).await {
                Placed::Added => changes.added.push(id),
                Placed::Changed => changes.changed.push(id),
                Placed::Same => {}
            }
        }
        self.changed = true;
        if self.lead.leads()
            && let Err(error) = self.record_all().await
        {
            // The next round writes it down.
            self.away(&error);
        }
        Ok(changes)
    }

    /// Puts a specification in its place.
    async fn place(&mut self, spec: Spec, source: Source, wanted: Option<bool>) -> Placed {
        let (now, id) = (Instant::now(), spec.id.clone());
        self.changed = true;
        let Some(member) = self.members.get_mut(&id) else {
            self.members.insert(id, Member::new(spec, source, wanted, now));
            return Placed::Added;
        };
        let placed = match (member.removed, member.spec == spec) {
            (true, _) => Placed::Added,
            (false, false) => Placed::Changed,
            (false, true) => Placed::Same,
        };
        (member.source, member.wanted, member.removed) = (source, wanted, false);
        member.spec = spec;
        let other = member.process().is_some_and(|process| process.fingerprint != member.spec.fingerprint());
        if member.settle(now) {
            self.end(&id, Why::Stop).await;
        } else if other {
            self.end(&id, Why::Renew).await;
        } else if placed != Placed::Same {
            // A new specification deserves a new try.
            member.revive(now);
        }
        placed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placed {
    Added,
    Changed,
    Same,
}
