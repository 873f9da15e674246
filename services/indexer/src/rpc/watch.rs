//! Watching a source: its events in chain order from a position on, and retractions after reorganisations.
//!
//! A watcher's position is a block, a log within it, and the epoch under which it was reached. Only complete blocks are sent, so
//! events need no sorting and none arrives late. A reorganisation is a new epoch: the watcher is notified of the undone blocks
//! that it had seen events of, is set back to the fork, and continues from there. Events that were read while the epoch changed
//! are dropped and read again.
//!
//! Delivery is at least once around a lost connection: a cursor never skips something that was not sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::indexer::v1 as pb;
use rpc::Draining;
use rpc::page::{self, Filter};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::convert;
use crate::event::{EventRepo, Stored};
use crate::range::{RangeRepo, Reorganisation, UndoRepo};
use crate::source::Source;
use crate::store::{Store, StoreError};

/// Events read in one step.
const STEP: i64 = 500;
/// Responses buffered for one watcher.
const BUFFER: usize = 256;
/// How often the cursors are read while anybody watches.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A watcher reads its cursor at least this often, whatever the poller reports.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How far a watcher is: everything before `block` was sent, and within it everything up to `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    epoch: i64,
    block: u64,
    log: Option<u32>,
}

impl Position {
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

    /// The position after a reorganisation, and the retractions to send, newest first.
    fn after(self, reorganisation: &Reorganisation) -> (Self, Vec<pb::Retraction>) {
        let seen = reorganisation.blocks.iter().filter(|gone| self.has_seen(gone.number));
        let retractions = seen
            .map(|gone| pb::Retraction { block_number: gone.number, block_hash: gone.hash.clone() })
            .collect();
        let first = reorganisation.fork.map_or(0, |fork| fork.saturating_add(1));
        let position = if self.has_seen(first) {
            Self { epoch: reorganisation.epoch, block: first, log: None }
        } else {
            Self { epoch: reorganisation.epoch, ..self }
        };
        (position, retractions)
    }
}

/// Epoch and end of the run, by source.
type Completion = HashMap<String, (i64, u64)>;

/// Serves watchers. Clones share one poller.
#[derive(Debug, Clone)]
pub(crate) struct Watchers {
    ranges: RangeRepo,
    events: EventRepo,
    undo: UndoRepo,
    completion: Arc<watch::Sender<Completion>>,
}

impl Watchers {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            ranges: RangeRepo::new(store.clone()),
            events: EventRepo::new(store.clone()),
            undo: UndoRepo::new(store.clone()),
            completion: Arc::new(watch::Sender::new(Completion::new())),
        }
    }

    /// Reads the cursors while anybody watches: one query for all watchers.
    pub(crate) async fn poll(self, stop: CancellationToken) -> Result<(), StoreError> {
        while !stop.is_cancelled() {
            if self.completion.receiver_count() > 0
                && let Ok(cursors) = self.ranges.cursors().await
            {
                let now: Completion =
                    cursors.into_iter().map(|c| (c.source, (c.epoch, c.done_before))).collect();
                self.completion.send_if_modified(|known| {
                    let changed = *known != now;
                    *known = now;
                    changed
                });
            }
            stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await;
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
        let position = match Position::parse(filter, &request.cursor)? {
            Some(position) if position.epoch > cursor.epoch => {
                return Err(rpc::error::invalid("cursor", "is of a later state than this store has"));
            }
            Some(position) => position,
            None if request.from_block > 0 => {
                Position { epoch: cursor.epoch, block: request.from_block, log: None }
            }
            None => Position { epoch: cursor.epoch, block: cursor.done_before, log: None },
        };
        let (sender, receiver) = mpsc::channel(BUFFER);
        let watcher = Watcher { watchers: self.clone(), source, filter, position, sender };
        tokio::spawn(async move {
            tokio::select! {
                () = watcher.run() => {}
                // The client reconnects with its cursor, here or elsewhere.
                () = draining.begun() => {}
            }
        });
        Ok(receiver)
    }
}

struct Watcher {
    watchers: Watchers,
    source: Source,
    filter: Filter,
    position: Position,
    sender: mpsc::Sender<Result<pb::WatchEventsResponse, Status>>,
}

/// The watcher has disconnected.
struct Disconnected;

impl Watcher {
    async fn run(mut self) {
        let mut completion = self.watchers.completion.subscribe();
        loop {
            completion.mark_unchanged();
            match self.step().await {
                Ok(Ok(true)) => continue,
                Ok(Ok(false)) => {}
                Ok(Err(Disconnected)) => return,
                Err(error) => {
                    // The stream ends with a retryable status; the client has its cursor.
                    let _ = self.sender.send(Err(error.into())).await;
                    return;
                }
            }
            tokio::select! {
                _ = tokio::time::timeout(MAX_PAUSE, completion.changed()) => {}
                () = self.sender.closed() => return,
            }
        }
    }

    /// Sends the next events; `true` when there may be more.
    async fn step(&mut self) -> Result<Result<bool, Disconnected>, StoreError> {
        let watchers = self.watchers.clone();
        let name = self.source.name().to_owned();
        let Some(cursor) = watchers.ranges.cursor(&name).await? else { return Ok(Ok(false)) };
        if cursor.undoing.is_some() {
            return Ok(Ok(false));
        }
        if cursor.epoch > self.position.epoch {
            for one in &watchers.undo.between(&name, self.position.epoch, cursor.epoch).await? {
                if let Err(gone) = self.retract(one).await {
                    return Ok(Err(gone));
                }
            }
            self.position.epoch = cursor.epoch;
            return Ok(Ok(true));
        }
        let Some(last) = cursor.done_before.checked_sub(1).filter(|last| *last >= self.position.block) else {
            return Ok(Ok(false));
        };
        let after = (self.position.block, self.position.log);
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
            self.position = Position { epoch: cursor.epoch, block: cursor.done_before, log: None };
        }
        Ok(Ok(more))
    }

    async fn retract(&mut self, reorganisation: &Reorganisation) -> Result<(), Disconnected> {
        let (position, retractions) = self.position.after(reorganisation);
        let last = retractions.len().saturating_sub(1);
        for (index, retraction) in retractions.into_iter().enumerate() {
            // Until the last one the cursor stays before the reorganisation, so that a client that is cut off gets all of it again.
            let cursor = if index == last { position } else { self.position };
            let change = pb::watch_events_response::Change::Retraction(retraction);
            self.respond(cursor, change).await?;
        }
        self.position = position;
        Ok(())
    }

    async fn send(&mut self, stored: Stored) -> Result<(), Disconnected> {
        let event = convert::event(&self.source, stored);
        let position =
            Position { epoch: self.position.epoch, block: event.block_number, log: Some(event.log_index) };
        self.respond(position, pb::watch_events_response::Change::Event(event)).await?;
        self.position = position;
        Ok(())
    }

    async fn respond(
        &self,
        position: Position,
        change: pb::watch_events_response::Change,
    ) -> Result<(), Disconnected> {
        let response = pb::WatchEventsResponse { cursor: position.token(self.filter), change: Some(change) };
        self.sender.send(Ok(response)).await.map_err(|_| Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::domain::UndoneBlock;

    fn undone(fork: Option<u64>, numbers: &[u64]) -> Reorganisation {
        let blocks = numbers.iter().map(|number| UndoneBlock { number: *number, hash: format!("h{number}") });
        Reorganisation { epoch: 4, fork, blocks: blocks.collect() }
    }

    #[test]
    fn a_watcher_is_notified_only_of_what_it_saw_and_set_back_to_the_fork() {
        let position = Position { epoch: 3, block: 20, log: Some(1) };
        let (after, gone) = position.after(&undone(Some(17), &[22, 20, 18]));
        assert_eq!(gone.iter().map(|r| r.block_number).collect::<Vec<_>>(), [20, 18]);
        assert_eq!(after, Position { epoch: 4, block: 18, log: None });
        let (after, gone) = position.after(&undone(Some(20), &[22]));
        assert!(gone.is_empty());
        assert_eq!(after, Position { epoch: 4, block: 20, log: Some(1) });
        let untouched = Position { epoch: 3, block: 18, log: None };
        assert_eq!(
            untouched.after(&undone(Some(17), &[18])),
            (Position { epoch: 4, ..untouched }, Vec::new())
        );
        let (after, _) = position.after(&undone(None, &[]));
        assert_eq!(after.block, 0);
    }

    #[test]
    fn a_cursor_leads_back_to_its_position_and_belongs_to_its_source() {
        let filter = Filter::of("watch", &[("source", "a")]);
        for log in [None, Some(7)] {
            let position = Position { epoch: 2, block: 11, log };
            assert_eq!(Position::parse(filter, &position.token(filter)).unwrap(), Some(position));
            let other = Filter::of("watch", &[("source", "b")]);
            assert!(Position::parse(other, &position.token(filter)).is_err());
        }
        assert_eq!(Position::parse(filter, "").unwrap(), None);
        assert!(Position::parse(filter, "nonsense").is_err());
    }
}
