//! The [`ChainEdge`] of a chain from its settings. This is the one place that knows the adapter of each family of chain.

use std::sync::Arc;
use std::time::Duration;

use types::{AddressFormat, ChainName, RawAmount};

use crate::edge::ChainEdge;
use crate::error::ConfigError;
use crate::evm::{EvmChain, EvmConfig, FeeKind, FeePolicy, Finality};
use crate::node::NodeConfig;
use crate::tron::{TronChain, TronConfig};

/// A chain as the catalogue describes it.
#[derive(Debug, Clone)]
pub struct Settings {
    pub chain: ChainName,
    pub kind: AddressFormat,
    /// The chain's own number; every node must report it.
    pub network_id: u64,
    /// In order of preference.
    pub nodes: Vec<NodeConfig>,
    /// Blocks on top after which a block is final; none for the chain's own finality. TRON has no other.
    pub depth: Option<u64>,
    /// For each answer of a node.
    pub timeout: Duration,
    pub caps: Caps,
}

/// Limits of what may be paid, and how long a signed transaction may be included.
#[derive(Debug, Clone)]
pub struct Caps {
    /// Whether gas is priced by EIP-1559.
    pub dynamic_fees: bool,
    /// The most that is paid for one unit of gas or energy.
    pub max_unit_price: RawAmount,
    /// On chains where a transaction expires.
    pub window: Option<Duration>,
}

impl Default for Caps {
    /// For services that only read and price nothing.
    fn default() -> Self {
        Self { dynamic_fees: true, max_unit_price: RawAmount::MAX, window: None }
    }
}

/// Does no I/O: nodes are first asked when they are first needed.
pub fn connect(settings: Settings) -> Result<Arc<dyn ChainEdge>, ConfigError> {
    match settings.kind {
        AddressFormat::Evm => Ok(Arc::new(EvmChain::new(evm(settings))?)),
        AddressFormat::Tron => Ok(Arc::new(TronChain::new(tron(settings))?)),
    }
}

fn evm(settings: Settings) -> EvmConfig {
    let Settings { chain, network_id, nodes, caps, .. } = settings;
    let finality = settings.depth.map_or(Finality::Tag, Finality::Depth);
    let cap = caps.max_unit_price.to_u128().unwrap_or(u128::MAX);
    let default = FeePolicy::default();
    let mut config = EvmConfig::new(chain, network_id, nodes, finality);
    config.fees = FeePolicy {
        kind: if caps.dynamic_fees { FeeKind::Dynamic } else { FeeKind::Legacy },
        max_fee_cap: cap,
        max_priority_cap: default.max_priority_cap.min(cap),
        ..default
    };
    config.timeout_ms = whole_ms(settings.timeout);
    config
}

fn tron(settings: Settings) -> TronConfig {
    let Settings { chain, network_id, nodes, caps, .. } = settings;
    let mut config = TronConfig::new(chain, network_id, nodes);
    config.costs.max_energy_price_sun = caps.max_unit_price.to_u64().unwrap_or(u64::MAX);
    config.timeout_ms = whole_ms(settings.timeout);
    if let Some(window) = caps.window {
        config.window_ms = whole_ms(window);
    }
    config
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
