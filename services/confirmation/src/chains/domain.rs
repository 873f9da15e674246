//! What confirmation must know of a chain.
//!
//! No I/O. Node addresses may contain API keys, so they are never printed: people see [`node_names`].

use std::fmt;
use std::time::Duration;

use types::{AddressFormat, ChainName};

/// How watches of a chain are followed. Replaced as a whole by a newer revision.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub name: ChainName,
    pub kind: AddressFormat,
    pub network_id: u64,
    /// In the operator's order of preference.
    pub nodes: Vec<String>,
    /// Blocks on top; 0 means the chain's own finality.
    pub depth: u32,
    /// After this long without inclusion a watch is reported as stuck; `None` means never.
    pub stuck_after: Option<Duration>,
    pub revision: u64,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("network_id", &self.network_id)
            .field("nodes", &node_names(&self.nodes))
            .field("depth", &self.depth)
            .field("stuck_after", &self.stuck_after)
            .field("revision", &self.revision)
            .finish()
    }
}

/// Names for nodes that are safe to show: scheme, host and port. Anything else in an address may be a key.
pub fn node_names(nodes: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let name = without_credentials(node);
        // Two nodes on one host differ only by their path, which is not shown.
        let same =
            names.iter().filter(|known| **known == name || known.starts_with(&format!("{name} #"))).count();
        names.push(if same == 0 { name } else { format!("{name} #{}", same + 1) });
    }
    names
}

fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_show_no_credentials_and_are_distinct() {
        let nodes = [
            "https://user:secret@a.example/v2/secret",
            "https://a.example:443/x?key=secret",
            "https://a.example/y",
        ];
        let nodes: Vec<String> = nodes.into_iter().map(str::to_owned).collect();
        let names = node_names(&nodes);
        assert_eq!(names, ["https://a.example", "https://a.example:443", "https://a.example #2"]);
    }
}
