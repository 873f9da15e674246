//! One worker of one source: claims a range, reads, decodes, stores, completes.
//!
//! The five stages and what `collect` returns are those of the fee collector that this service replaces:
//!
//! 1. claim: a range that failed or was abandoned, else the next one up to the head;
//! 2. load the logs; 3. decode them; 4. store them; 5. complete the range.
//!
//! A failure after a range was claimed releases it; one before that is logged and retried. An error leaves this module only when
//! a range cannot even be released after all retries: then the process has to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use worker::{Checkpoints, TickOutcome};

use super::context::SourceContext;
use super::fault::{Fatal, Fault};
use super::lease::Lease;
use super::partial::PartialRange;
use super::reorg::ReorgDetector;
use crate::config::CollectConfig;
use crate::event::Batch;
use crate::node::ReadError;
use crate::range::{Boundary, ClaimOutcome, Job, Mode, Owner, RangeRepo, Release, Status};
use crate::store::{Store, StoreError};

/// How old a cached head may be while history is read.
const HEAD_AGE: Duration = Duration::from_secs(1);
/// Pause before a range is retried when a node is to blame, and the step by which the pause grows for other failures.
const NODE_PAUSE_MS: u64 = 250;
const RETRY_PAUSE_MS: u64 = 500;
const MAX_PAUSE_MS: u64 = 60_000;
/// Events of blocks that are not final are kept in memory and written in one transaction; a range with more is shortened.
const MAX_UNCOMMITTED: usize = 20_000;
/// Rounds between two searches for abandoned ranges while there is work.
const PARK_EVERY: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoundOutcome {
    /// A range was read and stored.
    Done { events: u64 },
    /// Everything up to the head is read or claimed by other workers.
    Idle,
    /// A range failed and was released.
    Failed,
    /// Something failed before a range was claimed.
    Missed,
}

impl RoundOutcome {
    /// What `collect()` of the fee collector returned.
    #[cfg(test)]
    fn as_bool(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Missed => true,
            Self::Idle | Self::Failed => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Collector {
    store: Store,
    context: Arc<SourceContext>,
    ranges: RangeRepo,
    reorgs: ReorgDetector,
    owner: Owner,
    config: CollectConfig,
    mode: Mode,
    indexed: bool,
    rounds: u64,
    /// When head and mode were last recorded, and their values.
    recorded: Option<(Instant, u64, Mode)>,
    checkpoints: Checkpoints,
}

impl Collector {
    pub(crate) fn new(
        store: Store,
        context: Arc<SourceContext>,
        config: CollectConfig,
        worker: String,
    ) -> Self {
        let owner = Owner { worker, lease_ms: config.lease_ms, max_attempts: config.max_attempts };
        Self {
            ranges: RangeRepo::new(store.clone()),
            reorgs: ReorgDetector::new(store.clone(), config.finality_blocks),
            store,
            context,
            owner,
            config,
            mode: Mode::Historical,
            indexed: false,
            rounds: 0,
            recorded: None,
            checkpoints: Checkpoints::default(),
        }
    }

    /// How long to wait when there is nothing to do.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(match self.mode {
            Mode::Historical => self.config.historical_poll_ms,
            Mode::Realtime => self.config.realtime_poll_ms,
        })
    }

    /// One round: at most one range.
    pub(crate) async fn collect(&mut self) -> Result<RoundOutcome, Fatal> {
        let (mut job, head) = match self.claim().await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Ok(RoundOutcome::Idle),
            Err(error) => {
                let source = self.context.source.name();
                tracing::warn!(source, error = rpc::error::chain(&error), "no range could be claimed");
                return Ok(RoundOutcome::Missed);
            }
        };
        self.checkpoints.pass("indexer.after_claim").await;
        let lease = Lease::hold(self.ranges.clone(), job.clone(), self.owner.lease_ms);
        match self.work(&mut job, head, &lease).await {
            Ok(events) => {
                self.report(events, &job);
                Ok(RoundOutcome::Done { events })
            }
            Err(error) => {
                drop(lease);
                self.release(&job, &error).await?;
                Ok(RoundOutcome::Failed)
            }
        }
    }

    /// Stage 1. Returns the range, and the head that decides which of its blocks are final.
    async fn claim(&mut self) -> Result<Option<(Job, u64)>, Fault> {
        let context = Arc::clone(&self.context);
        let name = context.source.name();
        let age = match self.mode {
            Mode::Historical => HEAD_AGE,
            Mode::Realtime => Duration::ZERO,
        };
        let heads = context.reader.nodes.heads(age).await?;
        let head = heads.highest;
        if self.reorgs.check(&context, heads.agreed).await? {
            tracing::debug!(source = name, "undone");
        }
        // This comes before the claim, so that ranges which are claimed again and again cannot prevent it.
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(PARK_EVERY) {
            self.park().await?;
        }
        let again =
            self.store.retry("claim again", || self.ranges.claim_again(name, &self.owner, head)).await?;
        if let Some(job) = again {
            self.record_head(head).await?;
            return Ok(Some((job, heads.agreed)));
        }
        let claimed = self
            .store
            .retry("claim next", || self.ranges.claim_next(name, &self.owner, context.batch, head))
            .await?;
        let job = match claimed {
            ClaimOutcome::Range(job) => {
                self.mode = self.mode.by_lag(head.saturating_sub(job.to), context.batch);
                Some((*job, heads.agreed))
            }
            ClaimOutcome::CaughtUp => {
                self.mode = Mode::Realtime;
                None
            }
            ClaimOutcome::Congested => {
                tracing::warn!(source = name, "too many ranges are open or parked; no new one is begun");
                None
            }
        };
        self.record_head(head).await?;
        if job.is_none() {
            self.park().await?;
            // A worker that died between completing a range and moving the run left the run to the next idle worker.
            self.reorgs.advance(&context).await?;
            self.index().await?;
        }
        Ok(job)
    }

    /// Records head and mode for progress reports, not more often than needed.
    async fn record_head(&mut self, head: u64) -> Result<(), Fault> {
        let known = self.recorded.filter(|(at, seen, mode)| {
            at.elapsed() < HEAD_AGE && *mode == self.mode && (*seen == head || *mode == Mode::Historical)
        });
        if known.is_none() {
            let (name, mode) = (self.context.source.name(), self.mode);
            self.store.retry("record the head", || self.ranges.record_head(name, head, mode)).await?;
            self.recorded = Some((Instant::now(), head, mode));
        }
        Ok(())
    }

    /// Parks ranges whose last attempt ended without a report.
    async fn park(&self) -> Result<(), Fault> {
        let (name, max_attempts) = (self.context.source.name(), self.owner.max_attempts);
        let parked = self.store.retry("park", || self.ranges.park_abandoned(name, max_attempts)).await?;
        if parked > 0 {
            tracing::error!(source = name, parked, "ranges used up their attempts and are parked");
        }
        Ok(())
    }

    /// Stages 2 to 5. Returns the number of events stored; the range may be shorter afterwards.
    async fn work(&self, job: &mut Job, mut head: u64, lease: &Lease) -> Result<u64, Fault> {
        let context = &self.context;
        let finality = self.config.finality_blocks;
        let own = self.store.retry("read addresses", || context.own_addresses()).await?;
        // Final blocks are written as they are read. Others, and those that may replace another branch, are written as a whole
        // when the range is completed.
        let mut settled = job.is_settled(head, finality);
        let mut partial = PartialRange::new(context.decoder.empty(), own.version);
        let mut at = job.from;
        while at <= job.to {
            let chunk = match context.reader.read(&(at..=job.to)).await {
                Ok(chunk) => chunk,
                Err(ReadError::Behind { have: Some(have) }) if have >= at => {
                    // A node reported a head that no node has. The existing blocks are read and the rest becomes a range of its
                    // own. Blocks that seemed deep below that head may not be final at all.
                    self.shorten(job, have).await?;
                    head = head.min(have);
                    if at == job.from {
                        settled = job.is_settled(head, finality);
                    }
                    continue;
                }
                Err(ReadError::Behind { .. }) if at > job.from => {
                    self.shorten(job, at - 1).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.checkpoints.pass("indexer.after_load").await;
            let batch = context.decoder.decode(&chunk, &own)?;
            self.checkpoints.pass("indexer.after_parse").await;
            if lease.is_lost() {
                return Err(Fault::Lost);
            }
            at = chunk.to().saturating_add(1);
            partial.add(&chunk, batch.len(), head.saturating_sub(finality))?;
            if settled {
                self.write(job, &batch).await?;
                self.checkpoints.pass("indexer.after_store_part").await;
            } else {
                partial.batch.append(batch);
                if partial.batch.len() >= MAX_UNCOMMITTED && at <= job.to {
                    self.shorten(job, at - 1).await?;
                }
            }
        }
        self.checkpoints.pass("indexer.after_store").await;
        let count = partial.boundary.count;
        if settled && job.tried_before() {
            self.check_stored(job, count).await?;
        }
        let unwritten = (!settled).then_some(&partial.batch);
        if !self.store.retry("complete", || self.complete(job, &partial.boundary, unwritten)).await? {
            return Err(Fault::Lost);
        }
        self.checkpoints.pass("indexer.after_complete").await;
        // The range is in the ledger whatever happens now, so a failure here does not fail the range.
        if let Err(error) = self.reorgs.advance(context).await {
            tracing::warn!(
                source = context.source.name(),
                error = rpc::error::chain(&error),
                "the run was not moved"
            );
        }
        Ok(count)
    }

    /// Stage 4 for final blocks.
    async fn write(&self, job: &Job, batch: &Batch) -> Result<(), Fault> {
        let events = &self.context.events;
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

    /// An earlier attempt may have stored events of a branch that died since, deeper than the finality depth. They have ids of
    /// their own, so writing what was read does not replace them.
    async fn check_stored(&self, job: &Job, read: u64) -> Result<(), Fault> {
        let SourceContext { events, source, .. } = &*self.context;
        let stored = self.store.retry("count events", || events.count(source, job.from..=job.to)).await?;
        if stored == read { Ok(()) } else { Err(Fault::Leftovers { stored, read }) }
    }

    /// Stage 5, with stage 4 in the same transaction for what is not final. `false` when the range is no longer ours.
    async fn complete(
        &self,
        job: &Job,
        boundary: &Boundary,
        unwritten: Option<&Batch>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.store.begin().await?;
        let unwritten = match unwritten {
            // Without transactions the events are written first: a crash in between must leave an open range, not an empty one.
            Some(batch) if !tx.is_atomic() => {
                if self.ranges.renew(job, self.owner.lease_ms).await? {
                    let blocks = job.from..=job.to;
                    self.context.events.replace_in(&mut tx, &self.context.source, blocks, batch).await?;
                }
                None
            }
            unwritten => unwritten,
        };
        if !self.ranges.complete_in(&mut tx, job, boundary).await? {
            drop(tx);
            // An earlier try may have succeeded although its reply was lost.
            let known = self.ranges.job(&job.source, job.from).await?;
            return Ok(known.is_some_and(|known| {
                known.status == Status::Completed
                    && known.fence == job.fence
                    && known.to_hash == boundary.to_hash
            }));
        }
        if let Some(batch) = unwritten {
            self.context.events.replace_in(&mut tx, &self.context.source, job.from..=job.to, batch).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn shorten(&self, job: &mut Job, to: u64) -> Result<(), Fault> {
        let whole = &*job;
        let ours = self.store.retry("shorten a range", || self.ranges.shorten(whole, to)).await?;
        job.to = to;
        if ours { Ok(()) } else { Err(Fault::Lost) }
    }

    async fn release(&self, job: &Job, error: &Fault) -> Result<(), Fatal> {
        let text = rpc::error::chain(error);
        if matches!(error, Fault::Lost) {
            tracing::warn!(job = job.id, "the lease expired; another worker has the range");
            return Ok(());
        }
        let counts = !error.is_excused();
        let pause =
            if counts { RETRY_PAUSE_MS.saturating_mul(u64::from(job.attempts)) } else { NODE_PAUSE_MS };
        let pause = pause.min(MAX_PAUSE_MS);
        tracing::warn!(job = job.id, attempts = job.attempts, counts, error = text, "a range failed");
        let (source, kind) = (job.source.clone(), if counts { "range" } else { "excused" });
        metrics::counter!("bursar_indexer_failed_ranges_total", "source" => source, "kind" => kind)
            .increment(1);
        let parked = counts && job.attempts >= self.owner.max_attempts;
        let exact = matches!(error, Fault::Leftovers { .. });
        let release = Release { error: text.clone(), pause_ms: pause, counts, parked, exact };
        let released =
            self.store.retry("release", || self.ranges.release(job, &release)).await.map_err(Fatal)?;
        if released && parked {
            tracing::error!(job = job.id, error = text, "the range used up its attempts and is parked");
        }
        Ok(())
    }

    /// Starts building the indexes for filters once the source has caught up for the first time. With millions of events that
    /// takes minutes, and new blocks are read meanwhile.
    async fn index(&mut self) -> Result<(), Fault> {
        let name = self.context.source.name();
        if self.indexed || self.mode != Mode::Realtime {
            return Ok(());
        }
        let cursor = self.store.retry("read the cursor", || self.ranges.cursor(name)).await?;
        let Some(cursor) = cursor else { return Ok(()) };
        self.indexed = cursor.indexed;
        let due = !cursor.indexed && cursor.lag() <= self.context.batch;
        if due {
            Arc::clone(&self.context).start_indexing();
        }
        Ok(())
    }

    fn report(&self, events: u64, job: &Job) {
        let source = self.context.source.name();
        metrics::counter!("bursar_indexer_events_total", "source" => source.to_owned()).increment(events);
        metrics::counter!("bursar_indexer_blocks_total", "source" => source.to_owned())
            .increment(job.to - job.from + 1);
        tracing::debug!(
            source,
            from = job.from,
            to = job.to,
            events,
            mode = <&str>::from(self.mode),
            "range stored"
        );
    }
}

impl worker::Tick for Collector {
    type Error = Fatal;

    async fn tick(&mut self) -> Result<TickOutcome, Fatal> {
        Ok(match self.collect().await? {
            RoundOutcome::Done { .. } => TickOutcome::Worked,
            RoundOutcome::Idle => TickOutcome::Idle { next: Some(self.pause()) },
            // A released range is due again soon; the store has its pause.
            RoundOutcome::Failed => TickOutcome::Idle { next: Some(Duration::from_millis(NODE_PAUSE_MS)) },
            RoundOutcome::Missed => TickOutcome::Idle { next: Some(self.pause().min(HEAD_AGE)) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_distinguished_as_the_fee_collector_did() {
        assert!(RoundOutcome::Done { events: 0 }.as_bool());
        assert!(RoundOutcome::Missed.as_bool());
        assert!(!RoundOutcome::Idle.as_bool());
        assert!(!RoundOutcome::Failed.as_bool());
    }
}
