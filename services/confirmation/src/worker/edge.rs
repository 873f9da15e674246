//! From a chain's settings to the edge that calls its nodes.

use std::sync::Arc;
use std::time::Duration;

use chain::{Caps, ChainEdge, ConfigError, NodeConfig};

use crate::chains::Settings;
use crate::chains::domain::node_names;

/// Settings that cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("the settings of the chain cannot be used: {reason}")]
pub struct EdgeError {
    reason: ConfigError,
}

pub fn build(settings: &Settings, node_timeout: Duration) -> Result<Arc<dyn ChainEdge>, EdgeError> {
    let names = node_names(&settings.nodes);
    let nodes = settings.nodes.iter().zip(names).map(|(url, name)| NodeConfig { name, url: url.clone() });
    let settings = chain::Settings {
        chain: settings.name.clone(),
        kind: settings.kind,
        network_id: settings.network_id,
        nodes: nodes.collect(),
        depth: (settings.depth > 0).then(|| settings.depth.into()),
        timeout: node_timeout,
        caps: Caps::default(),
    };
    chain::connect(settings).map_err(|reason| EdgeError { reason })
}
