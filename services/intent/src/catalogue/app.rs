//! Keeping the catalogue's copy.

use sqlx::PgPool;

use super::domain::Entry;
use super::error::CatalogueError;
use super::repo;

/// The copy, as the progress service writes it.
#[derive(Debug, Clone)]
pub struct Catalogue {
    pool: PgPool,
}

impl Catalogue {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Takes an entry over unless a newer one is known.
    pub async fn put(&self, entry: &Entry) -> Result<(), CatalogueError> {
        let mut connection = self.pool.acquire().await?;
        let stored = repo::put_in(&mut connection, entry).await?;
        tracing::info!(
            chain = %entry.chain, asset = %entry.asset, revision = entry.revision, enabled = entry.enabled, stored,
            "catalogue entry received"
        );
        Ok(())
    }
}
