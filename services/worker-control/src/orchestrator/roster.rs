//! Which workers exist: those of the file and those added over the API.
//!
//! Invariants: a worker whose specification did not change is left alone; nothing is ended unless this orchestrator leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use worker::WorkerId;

use super::{Changes, Orchestrator, OrchestratorError};
use crate::member::{EndReason, Member};
use crate::spec::repo::DesiredState;
use crate::spec::{Mistake, Source, Spec, file};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    Added,
    Changed,
    Unchanged,
}

impl Orchestrator {
    /// Reads database and file again: they may have changed while another orchestrator led.
    pub(super) async fn reread(&mut self) -> Result<(), OrchestratorError> {
        let desired = self.repo.all().await?;
        let specs = match self.read_file().await {
            Ok(specs) => specs,
            Err(mistakes) => {
                tracing::error!(
                    mistakes = file::summary(&mistakes),
                    "the worker file is refused; its last good contents stay in effect"
                );
                let of_file = self.members.values().filter(|m| m.source == Source::File && !m.removed);
                of_file.map(|member| Spec::clone(&member.spec)).collect()
            }
        };
        self.arrange(specs, desired).await;
        Ok(())
    }

    async fn read_file(&self) -> Result<Vec<Spec>, Vec<Mistake>> {
        let Some(path) = self.workers_file.clone() else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || file::read(&path)).await;
        read.unwrap_or_else(|error| Err(vec![("file".to_owned(), error.to_string())]))
    }

    /// Takes the workers of a file and those added over the API. If both define a worker, the file decides.
    pub(super) async fn arrange(
        &mut self,
        specs: Vec<Spec>,
        desired: BTreeMap<WorkerId, DesiredState>,
    ) -> Changes {
        let mut all: BTreeMap<WorkerId, (Spec, Source)> =
            specs.into_iter().map(|spec| (spec.id.clone(), (spec, Source::File))).collect();
        let mut wanted = BTreeMap::new();
        for (id, state) in desired {
            wanted.insert(id.clone(), state.wanted);
            let Some(spec) = state.spec else { continue };
            if all.contains_key(&id) {
                tracing::warn!(worker = %id, "is defined in the file and was added over the API; the file decides");
                continue;
            }
            all.insert(id, (spec, Source::Api));
        }
        let new: BTreeSet<&WorkerId> = all.keys().collect();
        let present = self.members.iter().filter(|(id, member)| !member.removed && !new.contains(id));
        let gone: Vec<WorkerId> = present.map(|(id, _)| id.clone()).collect();
        let mut changes = Changes::default();
        for id in gone {
            self.remove(&id).await;
            changes.removed.push(id);
        }
        for (id, (spec, source)) in all {
            let wanted = wanted.get(&id).copied().flatten();
            match self.place(spec, source, wanted).await {
                Placement::Added => changes.added.push(id),
                Placement::Changed => changes.changed.push(id),
                Placement::Unchanged => {}
            }
        }
        self.changed = true;
        changes
    }

    /// Marks a worker as no longer configured; it disappears once its process has ended.
    pub(super) async fn remove(&mut self, id: &WorkerId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.removed = true;
        self.changed = true;
        if member.reconcile(Instant::now()) {
            self.end(id, EndReason::Stop).await;
        }
    }

    /// Adds a worker or gives it a new specification.
    pub(super) async fn place(&mut self, spec: Spec, source: Source, wanted: Option<bool>) -> Placement {
        let (now, id) = (Instant::now(), spec.id.clone());
        self.changed = true;
        let Some(member) = self.members.get_mut(&id) else {
            self.members.insert(id, Member::new(spec, source, wanted, now));
            return Placement::Added;
        };
        let placed = match (member.removed, *member.spec == spec) {
            (true, _) => Placement::Added,
            (false, false) => Placement::Changed,
            (false, true) => Placement::Unchanged,
        };
        (member.source, member.wanted, member.removed) = (source, wanted, false);
        member.set_spec(spec);
        let other = member.process().is_some_and(|process| process.fingerprint != member.fingerprint);
        if member.reconcile(now) {
            self.end(&id, EndReason::Stop).await;
        } else if other {
            self.end(&id, EndReason::Restart).await;
        } else if placed != Placement::Unchanged {
            // A new specification gets a new try at once.
            member.start_now(now);
        }
        placed
    }
}
