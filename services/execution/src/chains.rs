//! The chains of the catalogue as edges to their nodes, built from data and rebuilt when it changes.
//!
//! Owns the only construction of a chain edge in this service. It never decides what to do with a chain.
//!
//! Invariant: an edge always belongs to the revision of the settings beside it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use chain::evm::FeeKind;
use chain::{ChainEdge, EvmChain, EvmConfig, FeePolicy, Finality as EdgeFinality, NodeConfig};
use sqlx::PgPool;
use types::ChainName;

use crate::catalogue::{Chain, ChainKind, Finality, repo};

/// Why a chain cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum ChainsError {
    #[error("chain {chain} cannot be used as it is configured")]
    Config { chain: ChainName, source: chain::ConfigError },
    #[error("chains of kind {kind} have no withdrawals here")]
    Kind { chain: ChainName, kind: &'static str },
    #[error("the catalogue's database failed")]
    Database(#[from] sqlx::Error),
}

impl ChainsError {
    /// Whether it may be different later without anybody acting.
    pub fn retry(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Kind { .. } => false,
            Self::Database(source) => db::classify(source).is_transient(),
        }
    }
}

/// A chain, ready to be asked.
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
    known: Arc<RwLock<HashMap<ChainName, Arc<ChainHandle>>>>,
}

impl Chains {
    /// `timeout` bounds each question to a node.
    pub fn new(pool: PgPool, timeout: Duration) -> Self {
        Self { pool, timeout, known: Arc::default() }
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

    /// Reads the catalogue again; what changed gets a new edge. A chain that cannot be used is logged and left out, so that
    /// one bad row does not stop the others.
    pub async fn reload(&self) -> Result<Vec<Arc<ChainHandle>>, ChainsError> {
        let mut usable = Vec::new();
        for settings in repo::chains(&self.pool).await? {
            let name = settings.name.clone();
            match self.adopt(settings) {
                Ok(handle) => usable.push(handle),
                Err(error) => tracing::debug!(chain = %name, error = %error, "chain not used"),
            }
        }
        Ok(usable)
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
        let handle = Arc::new(ChainHandle { settings, edge: Arc::new(edge) });
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&handle));
        Ok(handle)
    }

    fn edge(&self, chain: &Chain) -> Result<EvmChain, ChainsError> {
        match chain.kind {
            ChainKind::Evm => {}
            ChainKind::Tron => {
                return Err(ChainsError::Kind { chain: chain.name.clone(), kind: chain.kind.as_str() });
            }
        }
        let finality = match chain.finality {
            Finality::Depth(depth) => EdgeFinality::Depth(u64::from(depth)),
            Finality::Chain => EdgeFinality::Tag,
        };
        let cap = chain.max_gas_price.to_u128().unwrap_or(u128::MAX);
        let default = FeePolicy::default();
        let fees = FeePolicy {
            kind: if chain.dynamic_fees { FeeKind::Dynamic } else { FeeKind::Legacy },
            max_fee_cap: cap,
            max_priority_cap: default.max_priority_cap.min(cap),
            ..default
        };
        let mut config = EvmConfig::new(chain.name.clone(), chain.network_id, nodes(&chain.nodes), finality);
        config.fees = fees;
        config.timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        EvmChain::new(config).map_err(|source| ChainsError::Config { chain: chain.name.clone(), source })
    }
}

/// Nodes by position: their addresses may hold credentials and are not fit for names in logs and metrics.
fn nodes(urls: &[String]) -> Vec<NodeConfig> {
    urls.iter()
        .enumerate()
        .map(|(index, url)| NodeConfig { name: format!("node-{index}"), url: url.clone() })
        .collect()
}
