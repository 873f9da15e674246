//! Listing and verifying the log.

use std::time::{Duration, Instant};

use sqlx::PgPool;

use super::{AuditEntry, Break, Draft, Head, Verifier, repo};

const CHUNK: u32 = 2_000;
/// How long one check runs before it leaves the rest to the next call: well within a caller's deadline.
const BUDGET: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log cannot be read")]
    Database(#[from] sqlx::Error),
}

#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The row after which the check begins; it was checked before.
    pub after: Head,
    /// A head noted earlier.
    pub anchor: Option<Head>,
    /// How many rows; without it as many as its time allows.
    pub max_entries: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub entries: u64,
    /// The first thing that does not fit.
    pub problem: Option<Break>,
    /// The last row that was checked, if there are more.
    pub next: Option<Head>,
    pub took: Duration,
}

/// Appends one decision in a transaction of its own.
pub(crate) async fn append(pool: &PgPool, draft: Draft) -> Result<(), sqlx::Error> {
    let mut tx = db::begin(pool).await?;
    repo::append_in(&mut tx, draft).await?;
    tx.commit().await
}

#[derive(Debug, Clone)]
pub struct Audit {
    pool: PgPool,
}

impl Audit {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Entries after `after`, oldest first.
    pub async fn list(&self, after: u64, limit: u32) -> Result<Vec<AuditEntry>, AuditError> {
        let mut connection = self.pool.acquire().await?;
        Ok(repo::page(&mut connection, after, limit).await?)
    }

    pub async fn head(&self) -> Result<Head, AuditError> {
        Ok(repo::head_in(&mut *self.pool.acquire().await?).await?)
    }

    /// Recomputes the chain in one snapshot, and compares it with the signing records and a noted head.
    pub async fn verify(&self, check: Check) -> Result<Report, AuditError> {
        let started = Instant::now();
        let mut tx = repo::begin_snapshot(&self.pool).await?;
        let stored = repo::head_in(&mut tx).await?;
        let mut verifier = Verifier::after(check.after, check.anchor);
        let checked = |verifier: &Verifier| verifier.head().sequence - check.after.sequence;
        let (written, begin) = (stored.sequence, check.after.sequence);
        // The log ends before the row that the caller has seen: its tail was cut off.
        let cut = Break::Tail { expected: begin, found: written };
        let (mut problem, mut next) = ((written < begin).then_some(cut), None);
        while problem.is_none() && next.is_none() {
            let first = verifier.head();
            let left = check.max_entries.map(u64::from).map(|max| max.saturating_sub(checked(&verifier)));
            let limit = left.and_then(|left| u32::try_from(left).ok()).map_or(CHUNK, |left| left.min(CHUNK));
            let entries = repo::page(&mut tx, first.sequence, limit).await?;
            problem = entries.iter().find_map(|entry| verifier.push(entry).err());
            let at_end = entries.len() < usize::try_from(limit).unwrap_or(usize::MAX);
            if problem.is_none() && at_end {
                problem = verifier.clone().finish(Some(stored)).err();
            }
            if problem.is_none() {
                let range = repo::Range {
                    // The first and the last part are open, so that they also find records with an impossible sequence.
                    after: (first != Head::GENESIS).then_some(first.sequence),
                    to: (!at_end).then_some(verifier.head().sequence),
                };
                let stray = repo::stray_record(&mut tx, range).await?;
                problem = stray.map(|(key, sequence)| Break::Record { key, sequence });
            }
            if at_end {
                break;
            }
            let full = check.max_entries.is_some_and(|max| checked(&verifier) >= u64::from(max));
            next = (full || started.elapsed() >= BUDGET).then(|| verifier.head());
        }
        tx.rollback().await?;
        let entries = checked(&verifier);
        if let Some(problem) = &problem {
            next = None;
            tracing::error!(%problem, entries, "audit log does not hold");
            metrics::counter!("bursar_signer_audit_breaks_total").increment(1);
        }
        Ok(Report { entries, problem, next, took: started.elapsed() })
    }
}
