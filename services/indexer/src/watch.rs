//! Watching a source: its events in chain order from a cursor on, and what reorganisations took back.
//!
//! A watcher's place is a block, a log within it, and the epoch under which it stood there. Only what is complete is sent, so order
//! needs no sorting and no event comes late. A reorganisation is a new epoch: the watcher is told the blocks it had seen events
//! of, is set back to the fork, and goes on from there. Events read while the epoch changed are thrown away and read again.
//!
//! Delivery is at least once around a lost connection: a cursor never leads past something that was not sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::indexer::v1 as pb;
use rpc::Draining;
use rpc::page::{self, Filter};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::convert;
use crate::event::{EventRepo, Stored};
use crate::range::{RangeRepo, Undo, Undone};
use crate::source::Source;
use crate::store::{Store, StoreError, block};

/// Events read in one step.
const STEP: i64 = 500;
/// Responses on their way to one watcher.
const BUFFER: usize = 256;
/// How often the standing of all sources is looked at while somebody watches.
const LOOK: Duration = Duration::from_millis(100);
/// Longest pause without a look, whatever the poller says.
const LONGEST: Duration = Duration::from_secs(5);

/// Where a watcher stands: everything before `block` was sent, and within it everything up to `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    epoch: i64,
    block: u64,
    log: Option<u32>,
}

impl Place {
    fn token(self, filter: Filter) -> String {
        let log = self.log.map(|log| log.to_string()).unwrap_or_default();
        page::encode(filter, &[&self.epoch.to_string(), &self.block.to_string(), &log])
    }

    fn parse(filter: Filter, token: &str) -> Result<Option<Self>, Status> {
        let bad = || rpc::error::invalid("cursor", "is not a cursor from an earlier response of this source");
        let parts = page::decode::<3>(filter, token).map_err(|_| bad())?;
        let Some([epoch, block, log]) = parts else { return Ok(None) };
        let log = if log.is_empty() { None } else { Some(log.parse().map_err(|_| bad())?) };
        let (epoch, block) = (epoch.parse().map_err(|_| bad())?, block.parse().map_err(|_| bad())?);
        Ok(Some(Self { epoch, block, log }))
    }

    /// Whether events of that block may have been sent.
    fn has_seen(self, block: u64) -> bool {
        block < self.block || (block == self.block && self.log.is_some())
    }

    /// The place after a reorganisation, and the blocks to be taken back, newest first.
    fn after(self, undone: &Undone) -> (Self, Vec<pb::Retraction>) {
        let seen = undone.blocks.iter().filter(|gone| self.has_seen(block(gone.number)));
        let retractions = seen
            .map(|gone| pb::Retraction { block_number: block(gone.number), block_hash: gone.hash.clone() })
            .collect();
        let first = undone.fork.map_or(0, |fork| fork.saturating_add(1));
        let place = if self.has_seen(first) {
            Self { epoch: undone.epoch, block: first, log: None }
        } else {
            Self { epoch: undone.epoch, ..self }
        };
        (place, retractions)
    }
}

/// The standing of all sources, as watchers wait for it: epoch and end of the run.
type Standing = HashMap<String, (i64, u64)>;

/// Serves watchers. Clones share one poller.
#[derive(Debug, Clone)]
pub(crate) struct Watchers {
    ranges: RangeRepo,
    events: EventRepo,
    undo: Undo,
    standing: Arc<watch::Sender<Standing>>,
}

impl Watchers {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            ranges: RangeRepo::new(store.clone()),
            events: EventRepo::new(store.clone()),
            undo: Undo::new(store.clone()),
            standing: Arc::new(watch::Sender::new(Standing::new())),
        }
    }

    /// Looks at the cursors as long as anybody watches: one query for all watchers.
    pub(crate) async fn poll(self, stop: CancellationToken) -> Result<(), StoreError> {
        while !stop.is_cancelled() {
            if self.standing.receiver_count() > 0
                && let Ok(cursors) = self.ranges.cursors().await
            {
                let now: Standing =
                    cursors.into_iter().map(|c| (c.source, (c.epoch, c.done_before))).collect();
                self.standing.send_if_modified(|known| {
                    let changed = *known != now;
                    *known = now;
                    changed
                });
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK)).await;
        }
        Ok(())
    }

    /// Begins a stream.
    pub(crate) async fn watch(
        &self,
        source: Source,
        request: &pb::WatchEventsRequest,
        draining: Draining,
    ) -> Result<mpsc::Receiver<Result<pb::WatchEventsResponse, Status>>, Status> {
        let filter = Filter::of("watch", &[("source", source.name())]);
        let cursor = self.ranges.cursor(source.name()).await?;
        let cursor = cursor.ok_or_else(|| rpc::error::not_found("source", source.name()))?;
        let place = match Place::parse(filter, &request.cursor)? {
            Some(place) if place.epoch > cursor.epoch => {
                return Err(rpc::error::invalid("cursor", "is of a later state than this store has"));
            }
            Some(place) => place,
            None if request.from_block > 0 => {
                Place { epoch: cursor.epoch, block: request.from_block, log: None }
            }
            None => Place { epoch: cursor.epoch, block: cursor.done_before, log: None },
        };
        let (sender, receiver) = mpsc::channel(BUFFER);
        let watcher = Watcher { watchers: self.clone(), source, filter, place, sender };
        tokio::spawn(async move {
            tokio::select! {
                () = watcher.run() => {}
                // The client comes back with its cursor, here or elsewhere.
                () = draining.begun() => {}
            }
        });
        Ok(receiver)
    }
}

/// One stream.
struct Watcher {
    watchers: Watchers,
    source: Source,
    filter: Filter,
    place: Place,
    sender: mpsc::Sender<Result<pb::WatchEventsResponse, Status>>,
}

/// The watcher has gone.
struct Gone;

impl Watcher {
    async fn run(mut self) {
        let mut standing = self.watchers.standing.subscribe();
        loop {
            standing.mark_unchanged();
            match self.step().await {
                Ok(Ok(true)) => continue,
                Ok(Ok(false)) => {}
                Ok(Err(Gone)) => return,
                Err(error) => {
                    // The stream ends with a reason that says to come back; the cursor is in the client's hands.
                    let _ = self.sender.send(Err(error.into())).await;
                    return;
                }
            }
            tokio::select! {
                _ = tokio::time::timeout(LONGEST, standing.changed()) => {}
                () = self.sender.closed() => return,
            }
        }
    }

    /// One step; `true` when there may be more at once.
    async fn step(&mut self) -> Result<Result<bool, Gone>, StoreError> {
        let watchers = self.watchers.clone();
        let name = self.source.name().to_owned();
        let Some(cursor) = watchers.ranges.cursor(&name).await? else { return Ok(Ok(false)) };
        if cursor.undoing.is_some() {
            return Ok(Ok(false));
        }
        if cursor.epoch > self.place.epoch {
            let undone = watchers.undo.between(&name, self.place.epoch, cursor.epoch).await?;
            for one in &undone {
                if let Err(gone) = self.retract(one).await {
                    return Ok(Err(gone));
                }
            }
            self.place.epoch = cursor.epoch;
            return Ok(Ok(true));
        }
        let Some(last) = cursor.done_before.checked_sub(1).filter(|last| *last >= self.place.block) else {
            return Ok(Ok(false));
        };
        let after = (self.place.block, self.place.log);
        let events = watchers.events.follow(&self.source, after, last, STEP).await?;
        let checked = watchers.ranges.cursor(&name).await?;
        if checked.is_none_or(|now| now.epoch != cursor.epoch || now.undoing.is_some()) {
            return Ok(Ok(true));
        }
        let more = events.len() as i64 >= STEP;
        for stored in events {
            if let Err(gone) = self.send(stored).await {
                return Ok(Err(gone));
            }
        }
        if !more {
            self.place = Place { epoch: cursor.epoch, block: cursor.done_before, log: None };
        }
        Ok(Ok(more))
    }

    async fn retract(&mut self, undone: &Undone) -> Result<(), Gone> {
        let (place, retractions) = self.place.after(undone);
        let last = retractions.len().saturating_sub(1);
        for (index, retraction) in retractions.into_iter().enumerate() {
            // Until the last one the cursor stays before the reorganisation: whoever is cut off hears all of it again.
            let cursor = if index == last { place } else { self.place };
            let change = pb::watch_events_response::Change::Retraction(retraction);
            self.respond(cursor, change).await?;
        }
        self.place = place;
        Ok(())
    }

    async fn send(&mut self, stored: Stored) -> Result<(), Gone> {
        let event = convert::event(&self.source, stored);
        let place = Place { epoch: self.place.epoch, block: event.block_number, log: Some(event.log_index) };
        self.respond(place, pb::watch_events_response::Change::Event(event)).await?;
        self.place = place;
        Ok(())
    }

    async fn respond(&self, place: Place, change: pb::watch_events_response::Change) -> Result<(), Gone> {
        let response = pb::WatchEventsResponse { cursor: place.token(self.filter), change: Some(change) };
        self.sender.send(Ok(response)).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::domain::UndoneBlock;

    fn undone(fork: Option<u64>, numbers: &[i64]) -> Undone {
        let blocks = numbers.iter().map(|number| UndoneBlock { number: *number, hash: format!("h{number}") });
        Undone { epoch: 4, fork, blocks: blocks.collect() }
    }

    #[test]
    fn a_watcher_is_told_only_of_what_it_saw_and_set_back_to_the_fork() {
        let place = Place { epoch: 3, block: 20, log: Some(1) };
        let (after, gone) = place.after(&undone(Some(17), &[22, 20, 18]));
        assert_eq!(gone.iter().map(|r| r.block_number).collect::<Vec<_>>(), [20, 18]);
        assert_eq!(after, Place { epoch: 4, block: 18, log: None });
        let (after, gone) = place.after(&undone(Some(20), &[22]));
        assert!(gone.is_empty());
        assert_eq!(after, Place { epoch: 4, block: 20, log: Some(1) });
        let untouched = Place { epoch: 3, block: 18, log: None };
        assert_eq!(untouched.after(&undone(Some(17), &[18])), (Place { epoch: 4, ..untouched }, Vec::new()));
        let (after, _) = place.after(&undone(None, &[]));
        assert_eq!(after.block, 0);
    }

    #[test]
    fn a_cursor_leads_back_to_its_place_and_belongs_to_its_source() {
        let filter = Filter::of("watch", &[("source", "a")]);
        for log in [None, Some(7)] {
            let place = Place { epoch: 2, block: 11, log };
            assert_eq!(Place::parse(filter, &place.token(filter)).unwrap(), Some(place));
            let other = Filter::of("watch", &[("source", "b")]);
            assert!(Place::parse(other, &place.token(filter)).is_err());
        }
        assert_eq!(Place::parse(filter, "").unwrap(), None);
        assert!(Place::parse(filter, "nonsense").is_err());
    }
}
