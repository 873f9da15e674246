//! One worker of one source: claims a range, reads, decodes, stores, completes.
//!
//! The five stages and what `collect` returns are those of the fee collector this service grew out of:
//!
//! 1. claim: a range that failed or was abandoned, else the next one up to the head;
//! 2. load the logs; 3. decode them; 4. store them; 5. complete the range.
//!
//! A failure after a range was claimed gives it back; one before is logged and tried again. Only when even giving back fails,
//! store retries and all, the error leaves this module: the process is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use worker::{Checkpoints, TickOutcome};

use super::fault::{Fatal, Fault};
use super::gathered::Gathered;
use super::guard::Guard;
use super::lease::Lease;
use crate::config::CollectConfig;
use crate::event::{Batch, Decoder, EventRepo};
use crate::node::{ReadError, Reader};
use crate::range::{Boundary, Claimed, GivenBack, Job, Mode, Owner, RangeRepo};
use crate::source::{AddressBook, OwnAddresses, Source, SourceRepo};
use crate::store::{Store, StoreError};

/// How old a look at the head may be while history is read.
const HEAD_AGE: Duration = Duration::from_secs(1);
/// Pause before a range is tried again when the node is to blame, and the step by which other failures wait longer.
const NODE_PAUSE_MS: u64 = 250;
const RETRY_PAUSE_MS: u64 = 500;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// Events of blocks that are not final, in memory and then in one transaction; a range with more is cut.
const MAX_GATHERED: usize = 20_000;
/// While there is work, abandoned ranges are looked for only so often.
const PARK_EVERY: u64 = 64;

/// What one round did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Collected {
    /// A range was read and stored.
    Done { events: u64 },
    /// Everything up to the head is read or in other hands.
    Idle,
    /// A range failed and was given back.
    Failed,
    /// Something failed before a range was claimed.
    Missed,
}

impl Collected {
    /// What `collect()` of the fee collector returned.
    #[cfg(test)]
    fn as_bool(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Missed => true,
            Self::Idle | Self::Failed => false,
        }
    }
}

/// What all workers of one source in this process share.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) source: Source,
    pub(crate) reader: Reader,
    pub(crate) events: EventRepo,
    decoder: Decoder,
    addresses: AddressBook,
    ranges: RangeRepo,
    batch: u64,
    /// Whether somebody here has seen to the indexes for filters.
    indexing: AtomicBool,
}

impl Reading {
    pub(crate) fn new(store: &Store, source: Source, reader: Reader, batch: u64) -> Self {
        Self {
            decoder: Decoder::new(source.clone()),
            addresses: AddressBook::new(source.number, SourceRepo::new(store.clone())),
            events: EventRepo::new(store.clone()),
            ranges: RangeRepo::new(store.clone()),
            reader,
            source,
            batch,
            indexing: AtomicBool::new(false),
        }
    }

    /// The addresses as of now. A range is stamped with their version, and counts only under the newest.
    async fn own_addresses(&self) -> Result<OwnAddresses, StoreError> {
        if !self.source.keeps_own_only() {
            return Ok(OwnAddresses::default());
        }
        let cursor = self.ranges.cursor(self.source.name()).await?;
        let (version, floor) =
            cursor.map_or((0, i64::MIN), |cursor| (cursor.address_version, cursor.address_floor));
        self.addresses.at(version, floor).await
    }
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Collector {
    store: Store,
    reading: Arc<Reading>,
    ranges: RangeRepo,
    guard: Guard,
    owner: Owner,
    config: CollectConfig,
    mode: Mode,
    indexed: bool,
    rounds: u64,
    /// When head and mode were last noted, and what they were.
    noted: Option<(Instant, u64, Mode)>,
    checkpoints: Checkpoints,
}

impl Collector {
    pub(crate) fn new(store: Store, reading: Arc<Reading>, config: CollectConfig, worker: String) -> Self {
        let owner = Owner { worker, lease_ms: config.lease_ms, max_attempts: config.max_attempts };
        Self {
            ranges: RangeRepo::new(store.clone()),
            guard: Guard::new(store.clone(), config.finality_blocks),
            store,
            reading,
            owner,
            config,
            mode: Mode::Historical,
            indexed: false,
            rounds: 0,
            noted: None,
            checkpoints: Checkpoints::default(),
        }
    }

    /// How long to rest when there is nothing to do.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(match self.mode {
            Mode::Historical => self.config.historical_poll_ms,
            Mode::Realtime => self.config.realtime_poll_ms,
        })
    }

    /// One round: at most one range.
    pub(crate) async fn collect(&mut self) -> Result<Collected, Fatal> {
        let (mut job, head) = match self.claim().await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Ok(Collected::Idle),
            Err(error) => {
                let source = self.reading.source.name();
                tracing::warn!(source, error = rpc::error::chain(&error), "no range could be claimed");
                return Ok(Collected::Missed);
            }
        };
        self.checkpoints.pass("indexer.after_claim").await;
        let lease = Lease::hold(self.ranges.clone(), job.clone(), self.owner.lease_ms);
        match self.work(&mut job, head, &lease).await {
            Ok(events) => {
                self.tell(events, &job);
                Ok(Collected::Done { events })
            }
            Err(error) => {
                drop(lease);
                self.give_back(&job, &error).await?;
                Ok(Collected::Failed)
            }
        }
    }

    /// Stage 1. Gives the range, and the head by which is judged what of it is final.
    async fn claim(&mut self) -> Result<Option<(Job, u64)>, Fault> {
        let reading = Arc::clone(&self.reading);
        let name = reading.source.name();
        let age = match self.mode {
            Mode::Historical => HEAD_AGE,
            Mode::Realtime => Duration::ZERO,
        };
        let heads = reading.reader.nodes.heads(age).await?;
        let head = heads.highest;
        if self.guard.look(&reading, heads.agreed).await? {
            tracing::debug!(source = name, "undone");
        }
        // Before anything is claimed: what is claimed again and again must not keep it from being done.
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(PARK_EVERY) {
            self.park().await?;
        }
        let again =
            self.store.retry("claim again", || self.ranges.claim_again(name, &self.owner, head)).await?;
        if let Some(job) = again {
            self.note(head).await?;
            return Ok(Some((job, heads.agreed)));
        }
        let claimed = self
            .store
            .retry("claim next", || self.ranges.claim_next(name, &self.owner, reading.batch, head))
            .await?;
        let job = match claimed {
            Claimed::Range(job) => {
                self.mode = self.mode.by_lag(head.saturating_sub(job.to), reading.batch);
                Some((*job, heads.agreed))
            }
            Claimed::CaughtUp => {
                self.mode = Mode::Realtime;
                None
            }
            Claimed::Congested => {
                tracing::warn!(source = name, "too many ranges wait or are parked; no new one is begun");
                None
            }
        };
        self.note(head).await?;
        if job.is_none() {
            self.park().await?;
            // A worker that died between completing a range and pushing the run left that to whoever is idle.
            self.guard.advance(&reading).await?;
            self.index().await?;
        }
        Ok(job)
    }

    /// Notes head and mode for whoever asks; while ranges fly by, only so often.
    async fn note(&mut self, head: u64) -> Result<(), Fault> {
        let known = self.noted.filter(|(at, seen, mode)| {
            at.elapsed() < HEAD_AGE && *mode == self.mode && (*seen == head || *mode == Mode::Historical)
        });
        if known.is_none() {
            let (name, mode) = (self.reading.source.name(), self.mode);
            self.store.retry("note", || self.ranges.note(name, head, mode)).await?;
            self.noted = Some((Instant::now(), head, mode));
        }
        Ok(())
    }

    /// Parks ranges whose last attempt ended without a word.
    async fn park(&self) -> Result<(), Fault> {
        let (name, max_attempts) = (self.reading.source.name(), self.owner.max_attempts);
        let parked = self.store.retry("park", || self.ranges.park_abandoned(name, max_attempts)).await?;
        if parked > 0 {
            tracing::error!(source = name, parked, "ranges used up their attempts and are parked");
        }
        Ok(())
    }

    /// Stages 2 to 5. Gives the number of events stored; the range may be shorter afterwards.
    async fn work(&self, job: &mut Job, mut head: u64, lease: &Lease) -> Result<u64, Fault> {
        let reading = &self.reading;
        let finality = self.config.finality_blocks;
        let own = self.store.retry("read addresses", || reading.own_addresses()).await?;
        // What is final is written as it comes; what is not, or may be of another branch, as a whole with the end of the range.
        let mut settled = job.is_settled(head, finality);
        let mut gathered = Gathered::new(reading.decoder.empty(), own.version);
        let mut at = job.from;
        while at <= job.to {
            let chunk = match reading.reader.read(&(at..=job.to)).await {
                Ok(chunk) => chunk,
                Err(ReadError::Behind { have: Some(have) }) if have >= at => {
                    // Somebody claimed a head that nobody has. What is there is read, the rest waits in a range of its own; and
                    // what seemed deep below that head may not be final at all.
                    self.cut(job, have).await?;
                    head = head.min(have);
                    if at == job.from {
                        settled = job.is_settled(head, finality);
                    }
                    continue;
                }
                Err(ReadError::Behind { .. }) if at > job.from => {
                    self.cut(job, at - 1).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.checkpoints.pass("indexer.after_load").await;
            let batch = reading.decoder.decode(&chunk, &own)?;
            self.checkpoints.pass("indexer.after_parse").await;
            if lease.is_lost() {
                return Err(Fault::Lost);
            }
            at = chunk.to().saturating_add(1);
            gathered.take(&chunk, batch.len(), head.saturating_sub(finality))?;
            if settled {
                self.write(job, &batch).await?;
                self.checkpoints.pass("indexer.after_store_part").await;
            } else {
                gathered.batch.append(batch);
                if gathered.batch.len() >= MAX_GATHERED && at <= job.to {
                    self.cut(job, at - 1).await?;
                }
            }
        }
        self.checkpoints.pass("indexer.after_store").await;
        let count = gathered.boundary.count;
        if settled && job.tried_before() {
            self.check_stored(job, count).await?;
        }
        let exchange = (!settled).then_some(&gathered.batch);
        if !self.store.retry("complete", || self.complete(job, &gathered.boundary, exchange)).await? {
            return Err(Fault::Lost);
        }
        self.checkpoints.pass("indexer.after_complete").await;
        // The range is in the ledger whatever comes now: a failure here is not the range's.
        if let Err(error) = self.guard.advance(reading).await {
            tracing::warn!(
                source = reading.source.name(),
                error = rpc::error::chain(&error),
                "the run was not pushed"
            );
        }
        Ok(count)
    }

    /// Stage 4 for final blocks.
    async fn write(&self, job: &Job, batch: &Batch) -> Result<(), Fault> {
        let events = &self.reading.events;
        if batch.len() == 0 {
            return Ok(());
        }
        if job.tried_before() {
            self.store.retry("replace events", || events.replace(batch)).await?;
        } else {
            self.store.retry("insert events", || events.insert(batch)).await?;
        }
        Ok(())
    }

    /// An earlier attempt may have stored events of a branch that died since, deeper than anything should. They have ids of their
    /// own, so writing what was read leaves them where they are.
    async fn check_stored(&self, job: &Job, read: u64) -> Result<(), Fault> {
        let Reading { events, source, .. } = &*self.reading;
        let stored = self.store.retry("count events", || events.count(source, job.from..=job.to)).await?;
        if stored == read { Ok(()) } else { Err(Fault::Leftovers { stored, read }) }
    }

    /// Stage 5, with stage 4 in the same transaction for what is not final. `false` when the range is no longer ours.
    async fn complete(
        &self,
        job: &Job,
        boundary: &Boundary,
        exchange: Option<&Batch>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.store.begin().await?;
        let exchange = match exchange {
            // Without transactions the events come first: a crash in between must leave an open range, not an empty one.
            Some(batch) if !tx.is_atomic() => {
                if self.ranges.renew(job, self.owner.lease_ms).await? {
                    let blocks = job.from..=job.to;
                    self.reading.events.exchange_in(&mut tx, &self.reading.source, blocks, batch).await?;
                }
                None
            }
            exchange => exchange,
        };
        if !self.ranges.complete_in(&mut tx, job, boundary).await? {
            drop(tx);
            // The answer to an earlier try may have been lost after it was done.
            let known = self.ranges.job(&job.source, job.from).await?;
            return Ok(known.is_some_and(|known| {
                known.status == crate::range::Status::Completed
                    && known.fence == job.fence
                    && known.to_hash == boundary.to_hash
            }));
        }
        if let Some(batch) = exchange {
            self.reading.events.exchange_in(&mut tx, &self.reading.source, job.from..=job.to, batch).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn cut(&self, job: &mut Job, to: u64) -> Result<(), Fault> {
        let whole = &*job;
        let ours = self.store.retry("shorten a range", || self.ranges.shorten(whole, to)).await?;
        job.to = to;
        if ours { Ok(()) } else { Err(Fault::Lost) }
    }

    async fn give_back(&self, job: &Job, error: &Fault) -> Result<(), Fatal> {
        let text = rpc::error::chain(error);
        if matches!(error, Fault::Lost) {
            tracing::warn!(job = job.id, "the lease ran out; another worker has the range");
            return Ok(());
        }
        let counts = !error.is_excused();
        let pause =
            if counts { RETRY_PAUSE_MS.saturating_mul(u64::from(job.attempts)) } else { NODE_PAUSE_MS };
        let pause = pause.min(LONGEST_PAUSE_MS);
        tracing::warn!(job = job.id, attempts = job.attempts, counts, error = text, "a range failed");
        let (source, kind) = (job.source.clone(), if counts { "range" } else { "excused" });
        metrics::counter!("bursar_indexer_failed_ranges_total", "source" => source, "kind" => kind)
            .increment(1);
        let parked = counts && job.attempts >= self.owner.max_attempts;
        let exact = matches!(error, Fault::Leftovers { .. });
        let back = GivenBack { error: text.clone(), pause_ms: pause, counts, parked, exact };
        let given =
            self.store.retry("give back", || self.ranges.give_back(job, &back)).await.map_err(Fatal)?;
        if given && parked {
            tracing::error!(job = job.id, error = text, "the range used up its attempts and is parked");
        }
        Ok(())
    }

    /// Has the indexes for filters built, once the source has caught up for the first time. Over millions of events that takes
    /// minutes, and new blocks are read meanwhile.
    async fn index(&mut self) -> Result<(), Fault> {
        let name = self.reading.source.name();
        if self.indexed || self.mode != Mode::Realtime {
            return Ok(());
        }
        let cursor = self.store.retry("read the cursor", || self.ranges.cursor(name)).await?;
        let Some(cursor) = cursor else { return Ok(()) };
        self.indexed = cursor.indexed;
        let due = !cursor.indexed && cursor.lag() <= self.reading.batch;
        if due && !self.reading.indexing.swap(true, Ordering::SeqCst) {
            let (reading, ranges) = (Arc::clone(&self.reading), self.ranges.clone());
            tokio::spawn(async move {
                if let Err(error) = build_indexes(&reading, &ranges).await {
                    let source = reading.source.name();
                    tracing::warn!(
                        source,
                        error = rpc::error::chain(&error),
                        "indexes for filters not built"
                    );
                    reading.indexing.store(false, Ordering::SeqCst);
                }
            });
        }
        Ok(())
    }

    fn tell(&self, events: u64, job: &Job) {
        let source = self.reading.source.name();
        metrics::counter!("bursar_indexer_events_total", "source" => source.to_owned()).increment(events);
        metrics::counter!("bursar_indexer_blocks_total", "source" => source.to_owned())
            .increment(job.to - job.from + 1);
        tracing::debug!(
            source,
            from = job.from,
            to = job.to,
            events,
            mode = self.mode.name(),
            "range stored"
        );
    }
}

impl worker::Tick for Collector {
    type Error = Fatal;

    async fn tick(&mut self) -> Result<TickOutcome, Fatal> {
        Ok(match self.collect().await? {
            Collected::Done { .. } => TickOutcome::Worked,
            Collected::Idle => TickOutcome::Idle { next: Some(self.pause()) },
            // A range that was given back is due again soon, and its pause is in the store.
            Collected::Failed => TickOutcome::Idle { next: Some(Duration::from_millis(NODE_PAUSE_MS)) },
            Collected::Missed => TickOutcome::Idle { next: Some(self.pause().min(HEAD_AGE)) },
        })
    }
}

async fn build_indexes(reading: &Reading, ranges: &RangeRepo) -> Result<(), StoreError> {
    reading.events.build_indexes(&reading.source).await?;
    ranges.note_indexed(reading.source.name()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_told_apart_as_the_fee_collector_did() {
        assert!(Collected::Done { events: 0 }.as_bool());
        assert!(Collected::Missed.as_bool());
        assert!(!Collected::Idle.as_bool());
        assert!(!Collected::Failed.as_bool());
    }
}
