//! The chains of the catalogue as clients of their nodes, built from data and rebuilt when it changes.
//!
//! Owns the only construction of a chain edge in this service. It never decides what to do with a chain.
//!
//! Invariant: an edge always belongs to the revision of the settings beside it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use chain::{Caps, ChainEdge, NodeConfig, Settings};
use sqlx::PgPool;
use types::ChainName;

use crate::catalogue::{Chain, Finality, repo};

/// Why a chain cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum ChainsError {
    #[error("chain {chain} cannot be used as it is configured")]
    Config { chain: ChainName, source: chain::ConfigError },
    #[error("the catalogue's database failed")]
    Database(#[from] sqlx::Error),
}

impl ChainsError {
    pub fn fault(&self) -> db::Fault {
        match self {
            Self::Config { .. } => db::Fault::Permanent,
            Self::Database(source) => db::classify(source),
        }
    }
}

/// A chain with the client of its nodes.
#[derive(Debug)]
pub struct ChainHandle {
    pub settings: Chain,
    pub edge: Arc<dyn ChainEdge>,
}

/// All of them. Clones share.
#[derive(Debug, Clone)]
pub struct Chains {
    pool: PgPool,
    timeout: Duration,
    /// How long what is signed may be included, on chains where that ends.
    window: Duration,
    known: Arc<RwLock<HashMap<ChainName, Arc<ChainHandle>>>>,
}

impl Chains {
    /// `timeout` bounds each call to a node.
    pub fn new(pool: PgPool, timeout: Duration, window: Duration) -> Self {
        Self { pool, timeout, window, known: Arc::default() }
    }

    /// The chain as last loaded; loaded now if it is not known yet.
    pub async fn get(&self, name: &ChainName) -> Result<Option<Arc<ChainHandle>>, ChainsError> {
        if let Some(handle) = self.cached(name) {
            return Ok(Some(handle));
        }
        match repo::chain(&self.pool, name).await? {
            Some(settings) => self.adopt(settings).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the catalogue again; what changed gets a new edge, what is gone is forgotten. A chain that cannot be used is
    /// logged and left out, so that one bad row does not stop the others.
    pub async fn reload(&self) -> Result<Vec<Arc<ChainHandle>>, ChainsError> {
        let all = repo::chains(&self.pool).await?;
        self.known
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|name, _| all.iter().any(|settings| settings.name == *name));
        let mut usable = Vec::new();
        for settings in all {
            let name = settings.name.clone();
            match self.adopt(settings) {
                Ok(handle) => usable.push(handle),
                Err(error) => tracing::debug!(chain = %name, error = %error, "chain not used"),
            }
        }
        Ok(usable)
    }

    /// Every chain of the catalogue, whether it can be used or not.
    pub async fn names(&self) -> Result<Vec<ChainName>, ChainsError> {
        self.reload().await?;
        Ok(repo::chains(&self.pool).await?.into_iter().map(|settings| settings.name).collect())
    }

    /// Those already loaded.
    pub fn loaded(&self) -> Vec<Arc<ChainHandle>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn cached(&self, name: &ChainName) -> Option<Arc<ChainHandle>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn adopt(&self, settings: Chain) -> Result<Arc<ChainHandle>, ChainsError> {
        if let Some(known) =
            self.cached(&settings.name).filter(|known| known.settings.revision == settings.revision)
        {
            return Ok(known);
        }
        let name = settings.name.clone();
        let edge = self.edge(&settings)?;
        let handle = Arc::new(ChainHandle { settings, edge });
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&handle));
        Ok(handle)
    }

    fn edge(&self, chain: &Chain) -> Result<Arc<dyn ChainEdge>, ChainsError> {
        let settings = Settings {
            chain: chain.name.clone(),
            kind: chain.kind,
            network_id: chain.network_id,
            nodes: nodes(&chain.nodes),
            depth: match chain.finality {
                Finality::Depth(depth) => Some(u64::from(depth)),
                Finality::Chain => None,
            },
            timeout: self.timeout,
            caps: Caps {
                dynamic_fees: chain.dynamic_fees,
                max_unit_price: chain.max_gas_price,
                window: Some(self.window),
            },
        };
        chain::connect(settings).map_err(|source| ChainsError::Config { chain: chain.name.clone(), source })
    }
}

/// Nodes by position: their addresses may hold credentials and are not fit for names in logs and metrics.
fn nodes(urls: &[String]) -> Vec<NodeConfig> {
    urls.iter()
        .enumerate()
        .map(|(index, url)| NodeConfig { name: format!("node-{index}"), url: url.clone() })
        .collect()
}
