//! What operators asked for over the API, in PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::Json;
use sqlx::{PgPool, Row};
use uuid::Uuid;
use worker::WorkerId;

use super::spec::{Kept, Spec};

/// Longest wait for the database: the orchestrator's loop waits too, and has a lock to renew.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why wishes cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    #[error("the database does not do what it is asked")]
    Database(#[from] sqlx::Error),
    #[error("the database did not answer within {} s", PATIENCE.as_secs())]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error("the database holds a worker with the id `{0}`, which is none")]
    Id(String),
}

/// What was asked for one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The whole worker, when no file names it.
    pub(crate) spec: Option<Spec>,
    /// Whether it should run, whatever its specification says.
    pub(crate) wanted: Option<bool>,
}

#[derive(Debug, Clone)]
pub(crate) struct Wishes {
    pool: PgPool,
}

impl Wishes {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Which installation this is.
    pub(crate) async fn fleet(&self) -> Result<String, WishError> {
        let id: Uuid = within(sqlx::query_scalar("SELECT id FROM fleet").fetch_one(&self.pool)).await?;
        Ok(id.to_string())
    }

    pub(crate) async fn all(&self) -> Result<BTreeMap<WorkerId, Wish>, WishError> {
        let all = sqlx::query("SELECT id, spec, wanted FROM worker_wishes");
        let rows = within(all.fetch_all(&self.pool)).await?;
        rows.iter()
            .map(|row| {
                let text: String = row.try_get("id")?;
                let id: WorkerId = text.parse().map_err(|_| WishError::Id(text))?;
                let spec: Option<Json<Kept>> = row.try_get("spec")?;
                let spec = spec.map(|Json(kept)| kept.with_id(id.clone()));
                Ok((id, Wish { spec, wanted: row.try_get("wanted")? }))
            })
            .collect()
    }

    /// Keeps a worker that was added over the API; it should run.
    pub(crate) async fn put(&self, spec: &Spec) -> Result<(), WishError> {
        let put = sqlx::query(
            "INSERT INTO worker_wishes (id, spec, wanted) VALUES ($1, $2, true) \
             ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, wanted = true, updated_at = now()",
        );
        within(put.bind(spec.id.as_str()).bind(Json(Kept::from(spec))).execute(&self.pool)).await?;
        Ok(())
    }

    /// Keeps whether a worker should run.
    pub(crate) async fn want(&self, id: &WorkerId, wanted: bool) -> Result<(), WishError> {
        let want = sqlx::query(
            "INSERT INTO worker_wishes (id, wanted) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET wanted = excluded.wanted, updated_at = now()",
        );
        within(want.bind(id.as_str()).bind(wanted).execute(&self.pool)).await?;
        Ok(())
    }

    /// Forgets a worker that was added over the API.
    pub(crate) async fn forget(&self, id: &WorkerId) -> Result<(), WishError> {
        let forget = sqlx::query("DELETE FROM worker_wishes WHERE id = $1");
        within(forget.bind(id.as_str()).execute(&self.pool)).await?;
        Ok(())
    }
}

/// A question that waits no longer than the loop can. One that was cut off may have been followed all the same; each of ours
/// can be asked again.
async fn within<T>(asked: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, WishError> {
    Ok(tokio::time::timeout(PATIENCE, asked).await??)
}
