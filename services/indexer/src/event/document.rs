//! Events as they are stored.
//!
//! The `_id` is the only unique index: scope, block number, block hash and log index, in that order and of fixed width. It makes
//! it impossible to store an event twice. Because it begins with scope and number, it is also the order in which events are
//! listed and watched, and the range by which they are deleted. For fee events the scope is the chain, for all others the
//! source's number.

use alloy_primitives::B256;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Document};
use serde::{Deserialize, Serialize};

const ID_BYTES: usize = 8 + 8 + 32 + 4;

pub(crate) fn id_of(scope: u64, block: u64, hash: &B256, log_index: u32) -> Binary {
    let mut bytes = Vec::with_capacity(ID_BYTES);
    bytes.extend_from_slice(&scope.to_be_bytes());
    bytes.extend_from_slice(&block.to_be_bytes());
    bytes.extend_from_slice(hash.as_slice());
    bytes.extend_from_slice(&log_index.to_be_bytes());
    Binary { subtype: BinarySubtype::Generic, bytes }
}

/// Below every event of a block and above all before it.
pub(crate) fn lowest(scope: u64, block: u64) -> Binary {
    // Ids have full width here too, because MongoDB orders binary values by length first.
    id_of(scope, block, &B256::ZERO, 0)
}

/// Above every event of a block and below all after it.
pub(crate) fn highest(scope: u64, block: u64) -> Binary {
    id_of(scope, block, &B256::repeat_byte(0xff), u32::MAX)
}

/// Scope, block, block hash and log index of an id.
pub(crate) fn parts_of(id: &[u8]) -> Option<(u64, u64, B256, u32)> {
    let (scope, rest) = id.split_first_chunk::<8>()?;
    let (block, rest) = rest.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let log_index = <[u8; 4]>::try_from(rest).ok()?;
    let numbers = (u64::from_be_bytes(*scope), u64::from_be_bytes(*block));
    Some((numbers.0, numbers.1, B256::from(*hash), u32::from_be_bytes(log_index)))
}

/// A fee event: `feeEvents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeeDoc {
    #[serde(rename = "_id")]
    pub(crate) id: Binary,
    pub(crate) chain_id: u64,
    pub(crate) contract_address: String,
    pub(crate) token: String,
    pub(crate) integrator: String,
    pub(crate) integrator_fee: String,
    pub(crate) lifi_fee: String,
    pub(crate) block_number: u64,
    pub(crate) block_time: DateTime,
    pub(crate) transaction_hash: String,
    pub(crate) log_index: u32,
}

/// An event of any other source: `events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventDoc {
    #[serde(rename = "_id")]
    pub(crate) id: Binary,
    pub(crate) source: String,
    pub(crate) chain_id: u64,
    pub(crate) contract_address: String,
    /// By parameter; integers are decimal texts, addresses and bytes lower-case hex.
    pub(crate) params: Document,
    pub(crate) block_number: u64,
    pub(crate) block_time: DateTime,
    pub(crate) transaction_hash: String,
    pub(crate) log_index: u32,
}

/// An event read from the store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stored {
    Fee(FeeDoc),
    Event(EventDoc),
}

impl Stored {
    pub(crate) fn id(&self) -> &Binary {
        match self {
            Self::Fee(fee) => &fee.id,
            Self::Event(event) => &event.id,
        }
    }
}

/// Events of one source that are to be stored.
#[derive(Debug)]
pub(crate) enum Batch {
    Fees(Vec<FeeDoc>),
    Events(Vec<EventDoc>),
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fees(fees) => fees.len(),
            Self::Events(events) => events.len(),
        }
    }

    pub(crate) fn append(&mut self, other: Batch) {
        match (self, other) {
            (Self::Fees(all), Self::Fees(more)) => all.extend(more),
            (Self::Events(all), Self::Events(more)) => all.extend(more),
            // A source has only one kind of document.
            (Self::Fees(_), Self::Events(_)) | (Self::Events(_), Self::Fees(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_like_scope_block_and_log() {
        let hash = B256::repeat_byte(7);
        let ids = [
            lowest(1, 5),
            id_of(1, 5, &hash, 0),
            id_of(1, 5, &hash, 300),
            highest(1, 5),
            lowest(1, 256),
            id_of(1, 256, &hash, 1),
            id_of(2, 0, &hash, 0),
        ];
        assert!(ids.windows(2).all(|pair| pair[0].bytes < pair[1].bytes));
        assert!(ids.iter().all(|id| id.bytes.len() == ID_BYTES));
        assert_eq!(parts_of(&ids[2].bytes), Some((1, 5, hash, 300)));
        assert_eq!(parts_of(&[0; 51]), None);
    }
}
