//! Which workers there are: those of the file and those added over the API, put in their places.
//!
//! Invariant: what is the same as before is left alone; nothing is ended here that we do not lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use worker::WorkerId;

use super::file;
use super::member::{Member, Why};
use super::orchestrator::{Orchestrator, OrchestratorError};
use super::order::Changes;
use super::spec::{Mistake, Source, Spec};
use super::wishes::Wish;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    Added,
    Changed,
    Same,
}

impl Orchestrator {
    /// Reads again what operators and the file ask for: it may have changed while another led, and nobody told us.
    pub(super) async fn learn(&mut self) -> Result<(), OrchestratorError> {
        let wishes = self.wishes.all().await?;
        let specs = match self.read_file().await {
            Ok(specs) => specs,
            Err(mistakes) => {
                tracing::error!(
                    mistakes = file::tell(&mistakes),
                    "the worker file is refused; what it said last holds"
                );
                let of_file = self.members.values().filter(|m| m.source == Source::File && !m.removed);
                of_file.map(|member| Spec::clone(&member.spec)).collect()
            }
        };
        self.arrange(specs, wishes).await;
        Ok(())
    }

    async fn read_file(&self) -> Result<Vec<Spec>, Vec<Mistake>> {
        let Some(path) = self.workers_file.clone() else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || file::read(&path)).await;
        read.unwrap_or_else(|error| Err(vec![("file".to_owned(), error.to_string())]))
    }

    /// Takes the workers of a file and those added over the API. One that both name is the file's.
    pub(super) async fn arrange(&mut self, specs: Vec<Spec>, wishes: BTreeMap<WorkerId, Wish>) -> Changes {
        let mut all: BTreeMap<WorkerId, (Spec, Source)> =
            specs.into_iter().map(|spec| (spec.id.clone(), (spec, Source::File))).collect();
        let mut wanted = BTreeMap::new();
        for (id, wish) in wishes {
            wanted.insert(id.clone(), wish.wanted);
            let Some(spec) = wish.spec else { continue };
            if all.contains_key(&id) {
                tracing::warn!(worker = %id, "is named in the file and was added over the API; the file decides");
                continue;
            }
            all.insert(id, (spec, Source::Api));
        }
        let new: BTreeSet<&WorkerId> = all.keys().collect();
        let there = self.members.iter().filter(|(id, member)| !member.removed && !new.contains(id));
        let gone: Vec<WorkerId> = there.map(|(id, _)| id.clone()).collect();
        let mut changes = Changes::default();
        for id in gone {
            self.remove(&id).await;
            changes.removed.push(id);
        }
        for (id, (spec, source)) in all {
            let wanted = wanted.get(&id).copied().flatten();
            match self.place(spec, source, wanted).await {
                Placed::Added => changes.added.push(id),
                Placed::Changed => changes.changed.push(id),
                Placed::Same => {}
            }
        }
        self.changed = true;
        changes
    }

    /// It is no longer configured, and is gone once its process is.
    pub(super) async fn remove(&mut self, id: &WorkerId) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.removed = true;
        self.changed = true;
        if member.settle(Instant::now()) {
            self.end(id, Why::Stop).await;
        }
    }

    /// Puts a specification in its place.
    pub(super) async fn place(&mut self, spec: Spec, source: Source, wanted: Option<bool>) -> Placed {
        let (now, id) = (Instant::now(), spec.id.clone());
        self.changed = true;
        let Some(member) = self.members.get_mut(&id) else {
            self.members.insert(id, Member::new(spec, source, wanted, now));
            return Placed::Added;
        };
        let placed = match (member.removed, *member.spec == spec) {
            (true, _) => Placed::Added,
            (false, false) => Placed::Changed,
            (false, true) => Placed::Same,
        };
        (member.source, member.wanted, member.removed) = (source, wanted, false);
        member.follow(spec);
        let other = member.process().is_some_and(|process| process.fingerprint != member.fingerprint);
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
