//! Handing out jobs: the claim, and the return of leases that ran out.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use types::Priority;
use uuid::Uuid;

use super::{Lease, Queue, QueueError};
use crate::scan::{Scan, Start};

/// Under full load a claim looks for expired leases no more often than this; one with capacity to spare always looks.
/// The same holds for leases that an earlier look had to leave because they were locked.
const RECLAIM_EVERY: Duration = Duration::from_secs(1);
/// How many expired leases one look returns: bounded, so that a claim after a long outage stays short.
const RECLAIM_LIMIT: u32 = 1_000;

/// Most urgent first: the order in which a claim reads the ranks.
const RANKS: [i16; 4] =
    [Priority::Urgent.rank(), Priority::High.rank(), Priority::Normal.rank(), Priority::Low.rank()];

pub(super) const fn ranks() -> [i16; 4] {
    RANKS
}

/// Before every job there is.
const HEAD: (DateTime<Utc>, Uuid) = (DateTime::UNIX_EPOCH, Uuid::nil());

/// Where the last claim ended in each rank, and up to when expired leases were taken back. These are hints: a wrong one costs
/// no more than a delay.
#[derive(Debug)]
pub(super) struct ScanPositions {
    scan: Scan,
    last: [(DateTime<Utc>, Uuid); RANKS.len()],
    reclaimed_to: DateTime<Utc>,
    reclaimed_all_at: Option<Instant>,
}

impl ScanPositions {
    pub(super) const fn new() -> Self {
        let last = [HEAD; RANKS.len()];
        Self { scan: Scan::new(), last, reclaimed_to: DateTime::UNIX_EPOCH, reclaimed_all_at: None }
    }

    /// `leases` are in the order of the claim.
    fn moved_past(&mut self, leases: &[Lease]) {
        let Some(last) = leases.last() else { return };
        let reached = last.priority.rank();
        for (place, rank) in self.last.iter_mut().zip(RANKS) {
            if rank == reached {
                *place = (last.due_at, last.job_id);
            } else if rank > reached {
                // The claim went on below this rank: nothing in it was left that was due.
                *place = (last.claimed_at, Uuid::nil());
            }
        }
    }
}

struct ClaimRequest<'a> {
    owner: &'a str,
    batch: u32,
    lease_ttl: Duration,
    start: Start,
}

impl Queue {
    /// Leases up to `batch` due jobs to `owner`, the most urgent first and then the longest due. Leases that ran out are
    /// taken back along the way.
    pub async fn claim(
        &self,
        pool: &PgPool,
        owner: &str,
        batch: u32,
        lease_ttl: Duration,
    ) -> Result<Vec<Lease>, QueueError> {
        let mut connection = pool.acquire().await?;
        self.claim_in(&mut connection, owner, batch, lease_ttl).await
    }

    /// The same as part of a transaction, or on a connection that the caller keeps, which saves the pool's round trip for
    /// each statement.
    pub async fn claim_in(
        &self,
        tx: &mut PgConnection,
        owner: &str,
        batch: u32,
        lease_ttl: Duration,
    ) -> Result<Vec<Lease>, QueueError> {
        let looked = self.reclaim_is_due();
        if looked {
            self.reclaim_in(tx, RECLAIM_LIMIT, true).await?;
        }
        let first = self.with_positions(|positions| positions.scan.start(Instant::now()));
        let mut leases = self.claim_once(tx, ClaimRequest { owner, batch, lease_ttl, start: first }).await?;
        let short = batch.saturating_sub(u32::try_from(leases.len()).unwrap_or(batch));
        // With capacity to spare, neither a skipped job nor an expired lease should wait for the next claim.
        if short > 0 {
            let expired = !looked && self.reclaim_in(tx, RECLAIM_LIMIT, false).await? > 0;
            let start = match first {
                Start::Head => Start::LastPlace,
                Start::LastPlace => self.with_positions(|positions| positions.scan.start(Instant::now())),
            };
            if expired || start == Start::Head {
                leases.extend(
                    self.claim_once(tx, ClaimRequest { owner, batch: short, lease_ttl, start }).await?,
                );
            }
        }
        // A claim of nothing counts as well, so that the counter exists before it first grows.
        metrics::counter!("bursar_queue_claimed_jobs_total", "queue" => self.name().to_owned())
            .increment(leases.len() as u64);
        Ok(leases)
    }

    /// Moves up to `limit` expired leases back among the waiting jobs, looking at all of them or at those that expired since the
    /// last look. `lapses` grows, so that a job that kills its workers can be distinguished from one that fails.
    async fn reclaim_in(&self, tx: &mut PgConnection, limit: u32, all: bool) -> Result<u64, QueueError> {
        let began = Instant::now();
        let start =
            if all { DateTime::UNIX_EPOCH } else { self.with_positions(|positions| positions.reclaimed_to) };
        let row = sqlx::query(include_str!("../../queries/queue_reclaim.sql"))
            .bind(self.name())
            .bind(i64::from(limit))
            .bind(start)
            .fetch_one(tx)
            .await?;
        let moved = row.try_get::<i64, _>("moved")?.unsigned_abs();
        if moved < u64::from(limit) {
            let looked_at = row.try_get("looked_at")?;
            self.with_positions(|positions| {
                positions.reclaimed_to = looked_at;
                positions.reclaimed_all_at = if all { Some(began) } else { positions.reclaimed_all_at };
            });
        }
        metrics::counter!("bursar_queue_lapsed_leases_total", "queue" => self.name().to_owned())
            .increment(moved);
        if moved > 0 {
            tracing::warn!(queue = self.name(), jobs = moved, "leases ran out; their jobs wait again");
        }
        Ok(moved)
    }

    async fn claim_once(
        &self,
        tx: &mut PgConnection,
        request: ClaimRequest<'_>,
    ) -> Result<Vec<Lease>, QueueError> {
        let began = Instant::now();
        let positions = match request.start {
            Start::Head => [HEAD; RANKS.len()],
            Start::LastPlace => self.with_positions(|positions| positions.last),
        };
        let (due, ids): (Vec<_>, Vec<_>) = positions.into_iter().unzip();
        let rows = sqlx::query(include_str!("../../queries/queue_claim.sql"))
            .bind(self.name())
            .bind(RANKS)
            .bind(due)
            .bind(ids)
            .bind(i64::from(request.batch))
            .bind(request.owner)
            .bind(crate::millis(request.lease_ttl))
            .fetch_all(tx)
            .await?;
        let mut leases =
            rows.iter().map(|row| read_lease(row, request.owner)).collect::<Result<Vec<_>, _>>()?;
        // The rows come in the order of their positions on disk.
        leases.sort_unstable_by_key(|lease| (std::cmp::Reverse(lease.priority), lease.due_at, lease.job_id));
        let short = leases.len() < usize::try_from(request.batch).unwrap_or(usize::MAX);
        self.with_positions(|positions| {
            positions.scan.note(request.start, began, short);
            positions.moved_past(&leases);
        });
        Ok(leases)
    }

    fn reclaim_is_due(&self) -> bool {
        self.with_positions(|positions| {
            positions.reclaimed_all_at.is_none_or(|at| at.elapsed() >= RECLAIM_EVERY)
        })
    }

    fn with_positions<T>(&self, read: impl FnOnce(&mut ScanPositions) -> T) -> T {
        // These are hints; one left half-written by a panic costs a search from the head at worst.
        read(&mut self.positions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read_lease(row: &PgRow, owner: &str) -> Result<Lease, sqlx::Error> {
    let priority =
        Priority::from_rank(row.try_get("rank")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Lease {
        job_id: row.try_get("job_id")?,
        token: row.try_get("token")?,
        owner: owner.to_owned(),
        priority,
        lapses: row.try_get::<i32, _>("lapses")?.unsigned_abs(),
        due_at: row.try_get("due_at")?,
        claimed_at: row.try_get("claimed_at")?,
        lease_until: row.try_get("lease_until")?,
    })
}
