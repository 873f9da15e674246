//! From a chain's settings to the edge that speaks to its nodes.

use std::sync::Arc;
use std::time::Duration;

use chain::{ChainEdge, ConfigError, EvmChain, EvmConfig, Finality, NodeConfig};
use types::AddressFormat;

use crate::chains::Settings;
use crate::chains::domain::node_names;

/// Settings that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    #[error("chains of kind {kind} cannot be followed by this version")]
    Kind { kind: AddressFormat },
    #[error("the settings of the chain cannot be used: {reason}")]
    Settings { reason: ConfigError },
}

pub fn build(settings: &Settings, node_timeout: Duration) -> Result<Arc<dyn ChainEdge>, EdgeError> {
    match settings.kind {
        AddressFormat::Evm => {
            let names = node_names(&settings.nodes);
            let nodes =
                settings.nodes.iter().zip(names).map(|(url, name)| NodeConfig { name, url: url.clone() });
            let finality = match settings.depth {
                0 => Finality::Tag,
                depth => Finality::Depth(depth.into()),
            };
            let (chain, network_id) = (settings.name.clone(), settings.network_id);
            let mut config = EvmConfig::new(chain, network_id, nodes.collect(), finality);
            config.timeout_ms = u64::try_from(node_timeout.as_millis()).unwrap_or(u64::MAX);
            let edge = EvmChain::new(config).map_err(|reason| EdgeError::Settings { reason })?;
            Ok(Arc::new(edge))
        }
        AddressFormat::Tron => Err(EdgeError::Kind { kind: settings.kind }),
    }
}
