//! What operators asked for over the API, in PostgreSQL.

use std::collections::BTreeMap;

use sqlx::types::Json;
use sqlx::{PgPool, Row};
use uuid::Uuid;
use worker::WorkerId;

use super::spec::{Kept, Spec};

/// Why wishes cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    #[error("the database does not answer")]
    Database(#[from] sqlx::Error),
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
        let id: Uuid = sqlx::query_scalar("SELECT id FROM fleet").fetch_one(&self.pool).await?;
        Ok(id.to_string())
    }

    pub(crate) async fn all(&self) -> Result<BTreeMap<WorkerId, Wish>, WishError> {
        let rows = sqlx::query("SELECT id, spec, wanted FROM worker_wishes").fetch_all(&self.pool).await?;
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
        sqlx::query(
            "INSERT INTO worker_wishes (id, spec, wanted) VALUES ($1, $2, true) \
             ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, wanted = true, updated_at = now()",
        )
        .bind(spec.id.as_str())
        .bind(Json(Kept::from(spec)))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Keeps whether a worker should run.
    pub(crate) async fn want(&self, id: &WorkerId, wanted: bool) -> Result<(), WishError> {
        sqlx::query(
            "INSERT INTO worker_wishes (id, wanted) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET wanted = excluded.wanted, updated_at = now()",
        )
        .bind(id.as_str())
        .bind(wanted)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
