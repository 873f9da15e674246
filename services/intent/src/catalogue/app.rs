//! Use cases of the catalogue's copy.

use std::collections::BTreeSet;

use sqlx::PgPool;
use types::Address;

use super::domain::CatalogueEntry;
use super::repo;
use crate::error::StoreError;

#[derive(Debug, Clone)]
pub struct Catalogue {
    pool: PgPool,
}

impl Catalogue {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Stores an entry with the operation wallets of its chain, unless a newer one is stored.
    pub async fn put(
        &self,
        entry: &CatalogueEntry,
        own_addresses: &BTreeSet<Address>,
    ) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        let stored = repo::put_in(&mut connection, entry, own_addresses).await?;
        tracing::info!(
            chain = %entry.chain, asset = %entry.asset, revision = entry.revision, enabled = entry.enabled, stored,
            "catalogue entry received"
        );
        Ok(())
    }
}
