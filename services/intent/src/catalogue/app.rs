//! Keeping the catalogue's copy.

use std::collections::BTreeSet;

use sqlx::PgPool;
use types::Address;

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

    /// Takes an entry over, with the operation wallets of its chain, unless a newer one is known.
    pub async fn put(&self, entry: &Entry, own_addresses: &BTreeSet<Address>) -> Result<(), CatalogueError> {
        let mut connection = self.pool.acquire().await?;
        let stored = repo::put_in(&mut connection, entry, own_addresses).await?;
        tracing::info!(
            chain = %entry.chain, asset = %entry.asset, revision = entry.revision, enabled = entry.enabled, stored,
            "catalogue entry received"
        );
        Ok(())
    }
}
