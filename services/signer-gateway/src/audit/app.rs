//! Listing and verifying the log.

use std::time::{Duration, Instant};

use sqlx::PgPool;

use super::{Break, Entry, Head, Verifier, repo};

/// Rows read at a time while verifying.
const CHUNK: u32 = 2_000;

/// Why the log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The database did not answer.
    #[error("the audit log cannot be read")]
    Database(#[from] sqlx::Error),
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rows that held.
    pub entries: u64,
    /// The first thing that does not fit.
    pub problem: Option<Break>,
    /// How long it took.
    pub took: Duration,
}

/// Reads the log.
#[derive(Debug, Clone)]
pub struct Audit {
    pool: PgPool,
}

impl Audit {
    /// Over the signer's database.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Entries after `after`, oldest first.
    pub async fn list(&self, after: u64, limit: u32) -> Result<Vec<Entry>, AuditError> {
        let mut connection = self.pool.acquire().await?;
        Ok(repo::page(&mut connection, after, limit).await?)
    }

    /// The newest place.
    pub async fn head(&self) -> Result<Head, AuditError> {
        Ok(repo::head(&self.pool).await?)
    }

    /// Recomputes the whole chain in one snapshot, and compares it with the signing records and a noted head.
    pub async fn verify(&self, anchor: Option<Head>) -> Result<Report, AuditError> {
        let started = Instant::now();
        let mut tx = db::begin(&self.pool).await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut *tx).await?;
        let mut verifier = Verifier::new(anchor);
        let stored = repo::head_in(&mut tx).await?;
        let mut problem = loop {
            let entries = repo::page(&mut tx, verifier.checked(), CHUNK).await?;
            if entries.is_empty() {
                break None;
            }
            if let Some(found) = entries.iter().find_map(|entry| verifier.push(entry).err()) {
                break Some(found);
            }
        };
        let entries = verifier.checked();
        if problem.is_none() {
            problem = verifier.finish(Some(stored)).err();
        }
        if problem.is_none() {
            let stray = repo::stray_record(&mut tx).await?;
            problem = stray.map(|(key, sequence)| Break::Record { key, sequence });
        }
        tx.rollback().await?;
        if let Some(problem) = &problem {
            tracing::error!(%problem, entries, "audit log does not hold");
            metrics::counter!("bursar_signer_audit_breaks_total").increment(1);
        }
        Ok(Report { entries, problem, took: started.elapsed() })
    }
}
