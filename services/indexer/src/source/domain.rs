//! Sources and the rules for their specifications. No I/O.

use std::fmt;

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use crate::event::EventShape;

const MAX_NAME: usize = 64;
pub(crate) const MAX_BATCH: u32 = 100_000;
pub(crate) const MAX_CONCURRENCY: u32 = 64;

/// A source as specified by configuration, by a call, or by the fee collector's variables; also its stored form.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceSpec {
    #[serde(rename = "_id")]
    pub(crate) name: String,
    pub(crate) chain_id: u64,
    /// Empty for a source over many contracts.
    pub(crate) contract_address: String,
    pub(crate) event_signature: String,
    pub(crate) start_block: u64,
    /// 0 for the process's default.
    pub(crate) batch_size: u32,
    /// 0 for the process's default.
    pub(crate) concurrency: u32,
    pub(crate) nodes: Vec<String>,
    pub(crate) address_parameters: Vec<String>,
    pub(crate) paused: bool,
}

// The URLs of nodes contain API keys, so they are not shown.
impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSpec")
            .field("name", &self.name)
            .field("chain_id", &self.chain_id)
            .field("contract_address", &self.contract_address)
            .field("event_signature", &self.event_signature)
            .field("start_block", &self.start_block)
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

impl SourceSpec {
    /// Every mistake in the specification, by field.
    pub(crate) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Some(problem) = name_problem(&self.name) {
            wrong.push(("name", problem));
        }
        if self.chain_id == 0 {
            wrong.push(("chain_id", "must be above zero".to_owned()));
        }
        if let Err(problem) = contract(&self.contract_address) {
            wrong.push(("contract_address", problem));
        }
        if i64::try_from(self.start_block).is_err() {
            wrong.push(("start_block", "is beyond any chain".to_owned()));
        }
        if self.batch_size > MAX_BATCH {
            wrong.push(("batch_size", format!("must be at most {MAX_BATCH}")));
        }
        if self.concurrency > MAX_CONCURRENCY {
            wrong.push(("concurrency", format!("must be at most {MAX_CONCURRENCY}")));
        }
        if self.nodes.is_empty() {
            wrong.push(("nodes", "at least one node is needed".to_owned()));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            // The URL itself is not shown, because it may contain a key.
            if chain::jsonrpc::JsonRpc::new(node, std::time::Duration::from_secs(1), 1).is_none() {
                wrong.push(("nodes", format!("node {index} is not an http or https address")));
            }
        }
        match EventShape::parse(&self.event_signature) {
            Err(error) => wrong.push(("event_signature", rpc::error::chain(&error))),
            Ok(shape) => {
                for name in &self.address_parameters {
                    if shape.indexed_address(name).is_none() {
                        let problem = format!("`{name}` is not an indexed address parameter of the event");
                        wrong.push(("address_parameters", problem));
                    }
                }
                if shape.is_fees_collected() && !self.address_parameters.is_empty() {
                    let problem = "fee events are kept for all addresses".to_owned();
                    wrong.push(("address_parameters", problem));
                }
            }
        }
        wrong
    }
}

fn name_problem(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME {
        Some(format!("must have 1 to {MAX_NAME} characters"))
    } else if !name.chars().all(allowed) {
        Some("may hold lower-case letters, digits, `-`, `_` and `.`".to_owned())
    } else {
        None
    }
}

fn contract(text: &str) -> Result<Option<Address>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    address(text).map(Some)
}

/// Parses an address; a checksum, if there is one, must be right.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    types::Address::parse_evm(text).map_err(|error| error.to_string())
}

/// A valid source with the number that its events are stored under.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    pub(crate) number: u32,
    pub(crate) spec: SourceSpec,
    pub(crate) contract: Option<Address>,
    pub(crate) shape: EventShape,
}

impl Source {
    /// `None` when the specification is not valid; callers have checked [`SourceSpec::mistakes`] before.
    pub(crate) fn new(number: u32, spec: SourceSpec) -> Option<Self> {
        let contract = contract(&spec.contract_address).ok()?;
        let shape = EventShape::parse(&spec.event_signature).ok()?;
        Some(Self { number, spec, contract, shape })
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn chain_id(&self) -> u64 {
        self.spec.chain_id
    }

    /// Whether only events about our own addresses are kept.
    pub(crate) fn keeps_own_only(&self) -> bool {
        !self.spec.address_parameters.is_empty()
    }

    /// The first field in which `other` differs although it may not change.
    pub(crate) fn fixed_difference(&self, other: &Source) -> Option<&'static str> {
        if self.spec.chain_id != other.spec.chain_id {
            Some("chain_id")
        } else if self.contract != other.contract {
            Some("contract_address")
        } else if self.shape != other.shape {
            Some("event_signature")
        } else if self.spec.start_block != other.spec.start_block {
            Some("start_block")
        } else if self.spec.address_parameters != other.spec.address_parameters {
            Some("address_parameters")
        } else {
            None
        }
    }

    /// Whether both would store the same fee events under the same ids.
    pub(crate) fn clashes(&self, other: &Source) -> bool {
        self.name() != other.name()
            && self.shape.is_fees_collected()
            && other.shape.is_fees_collected()
            && self.chain_id() == other.chain_id()
            && (self.contract.is_none() || other.contract.is_none() || self.contract == other.contract)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> SourceSpec {
        SourceSpec {
            name: "lifi".to_owned(),
            chain_id: 1,
            contract_address: "0xbD6C7B0d2f68c2b7805d88388319cfB6EcB50eA9".to_owned(),
            event_signature: crate::event::FEES_COLLECTED.to_owned(),
            nodes: vec!["http://127.0.0.1:1".to_owned()],
            ..SourceSpec::default()
        }
    }

    #[test]
    fn every_wrong_field_is_named() {
        assert!(spec().mistakes().is_empty());
        let wrong = SourceSpec {
            name: "Ä b".to_owned(),
            chain_id: 0,
            contract_address: "0x12".to_owned(),
            event_signature: "Transfer(".to_owned(),
            start_block: u64::MAX,
            batch_size: 1 << 30,
            concurrency: 1000,
            nodes: vec!["ftp://x".to_owned()],
            ..SourceSpec::default()
        };
        let mistakes = wrong.mistakes();
        let fields: Vec<_> = mistakes.iter().map(|(field, _)| *field).collect();
        let all =
            ["name", "chain_id", "contract_address", "start_block", "batch_size", "concurrency", "nodes"];
        assert!(all.iter().all(|field| fields.contains(field)), "{fields:?}");
        assert!(fields.contains(&"event_signature"));
    }

    #[test]
    fn address_parameters_are_indexed_addresses_of_the_event() {
        let transfer = "Transfer(address indexed from, address indexed to, uint256 value)".to_owned();
        let good =
            SourceSpec { event_signature: transfer, address_parameters: vec!["to".to_owned()], ..spec() };
        assert!(good.mistakes().is_empty());
        let bad = SourceSpec { address_parameters: vec!["value".to_owned()], ..good };
        assert_eq!(bad.mistakes()[0].0, "address_parameters");
    }

    #[test]
    fn two_fee_sources_of_one_contract_clash() {
        let one = Source::new(1, spec()).unwrap();
        let two = Source::new(2, SourceSpec { name: "other".to_owned(), ..spec() }).unwrap();
        assert!(one.clashes(&two));
        let elsewhere = SourceSpec { name: "other".to_owned(), chain_id: 2, ..spec() };
        assert!(!one.clashes(&Source::new(2, elsewhere).unwrap()));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A source of transfers to our own addresses.
    pub(crate) fn deposits() -> Source {
        let spec = SourceSpec {
            name: "deposits".to_owned(),
            chain_id: 1,
            event_signature: "Transfer(address indexed from, address indexed to, uint256 value)".to_owned(),
            nodes: vec!["http://127.0.0.1:1".to_owned()],
            address_parameters: vec!["to".to_owned()],
            ..SourceSpec::default()
        };
        Source::new(7, spec).unwrap()
    }
}
