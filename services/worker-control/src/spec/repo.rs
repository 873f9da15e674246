//! The desired state that operators set over the API, in PostgreSQL (table `worker_wishes`).

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::Json;
use sqlx::{PgPool, Row};
use uuid::Uuid;
use worker::WorkerId;

use super::{Spec, StoredSpec};

/// The orchestrator's loop waits for the database too, and has a lock to renew meanwhile.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RepoError {
    #[error("the database refused a statement")]
    Database(#[from] sqlx::Error),
    #[error("the database did not answer within {} s", TIMEOUT.as_secs())]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("the database holds `{0}`, which is not a valid worker id")]
    Id(String),
}

impl RepoError {
    pub(crate) fn fault(&self) -> db::Fault {
        match self {
            Self::Database(error) => db::classify(error),
            Self::Timeout(_) => db::Fault::TimedOut,
            Self::Id(_) => db::Fault::Permanent,
        }
    }
}

/// What operators asked for one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredState {
    /// The whole worker, when no file defines it.
    pub(crate) spec: Option<Spec>,
    /// Whether it should run, whatever its specification says.
    pub(crate) wanted: Option<bool>,
}

#[derive(Debug, Clone)]
pub(crate) struct SpecRepo {
    pool: PgPool,
}

impl SpecRepo {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The id of this installation.
    pub(crate) async fn fleet_id(&self) -> Result<String, RepoError> {
        let id: Uuid = within(sqlx::query_scalar("SELECT id FROM fleet").fetch_one(&self.pool)).await?;
        Ok(id.to_string())
    }

    pub(crate) async fn all(&self) -> Result<BTreeMap<WorkerId, DesiredState>, RepoError> {
        let all = sqlx::query("SELECT id, spec, wanted FROM worker_wishes");
        let rows = within(all.fetch_all(&self.pool)).await?;
        rows.iter()
            .map(|row| {
                let text: String = row.try_get("id")?;
                let id: WorkerId = text.parse().map_err(|_| RepoError::Id(text))?;
                let spec: Option<Json<StoredSpec>> = row.try_get("spec")?;
                let spec = spec.map(|Json(stored)| stored.with_id(id.clone()));
                Ok((id, DesiredState { spec, wanted: row.try_get("wanted")? }))
            })
            .collect()
    }

    /// Stores a worker that was added over the API; it should run.
    pub(crate) async fn put(&self, spec: &Spec) -> Result<(), RepoError> {
        let put = sqlx::query(
            "INSERT INTO worker_wishes (id, spec, wanted) VALUES ($1, $2, true) \
             ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, wanted = true, updated_at = now()",
        );
        within(put.bind(spec.id.as_str()).bind(Json(StoredSpec::from(spec))).execute(&self.pool)).await?;
        Ok(())
    }

    /// Stores whether a worker should run.
    pub(crate) async fn set_wanted(&self, id: &WorkerId, wanted: bool) -> Result<(), RepoError> {
        let want = sqlx::query(
            "INSERT INTO worker_wishes (id, wanted) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET wanted = excluded.wanted, updated_at = now()",
        );
        within(want.bind(id.as_str()).bind(wanted).execute(&self.pool)).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, id: &WorkerId) -> Result<(), RepoError> {
        let delete = sqlx::query("DELETE FROM worker_wishes WHERE id = $1");
        within(delete.bind(id.as_str()).execute(&self.pool)).await?;
        Ok(())
    }
}

/// Limits a statement to [`TIMEOUT`]. One that was cut off may have taken effect all the same; each of ours can be repeated.
async fn within<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, RepoError> {
    Ok(tokio::time::timeout(TIMEOUT, statement).await??)
}
