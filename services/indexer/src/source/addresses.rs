//! A source's own addresses in memory: the filter that stands in for one node query per address.
//!
//! The node is asked for the event of a contract, whoever it is about; what is not about us is dropped here. A look costs one
//! hash of twenty bytes, so a hundred thousand addresses cost no more than ten.
//!
//! Invariant: the set of a version holds every address of that version and of all before it.

use std::sync::{Arc, RwLock};

use alloy_primitives::map::AddressHashSet;
use alloy_primitives::{Address, B256};

use super::SourceRepo;
use crate::store::StoreError;

/// Calls that add addresses may overtake each other: one that began before the version we know may have ended after it. There is
/// one at a time in each process, so this is how many processes may answer calls.
const OVERTAKING: i64 = 64;

/// The addresses as of a version. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnAddresses {
    pub(crate) version: i64,
    set: Arc<AddressHashSet>,
}

impl OwnAddresses {
    /// Whether an indexed address, as a topic holds it, is ours.
    pub(crate) fn holds(&self, topic: &B256) -> bool {
        // The upper twelve bytes of an address's topic are zero; anything else is no address.
        topic[..12].iter().all(|byte| *byte == 0) && self.set.contains(&Address::from_slice(&topic[12..]))
    }
}

/// Keeps the newest set of one source, shared by its workers in this process.
#[derive(Debug)]
pub(crate) struct AddressBook {
    source: u32,
    repo: SourceRepo,
    known: RwLock<OwnAddresses>,
}

impl AddressBook {
    pub(crate) fn new(source: u32, repo: SourceRepo) -> Self {
        Self { source, repo, known: RwLock::new(OwnAddresses::default()) }
    }

    /// The set of at least this version; reads only what is new.
    pub(crate) async fn at(&self, version: i64) -> Result<OwnAddresses, StoreError> {
        let known = self.known();
        if known.version >= version {
            return Ok(known);
        }
        let new = self.repo.addresses_after(self.source, known.version - OVERTAKING).await?;
        let mut set = AddressHashSet::clone(&known.set);
        set.extend(new);
        let fresh = OwnAddresses { version, set: Arc::new(set) };
        let mut slot = self.known.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if slot.version < version {
            *slot = fresh.clone();
        }
        Ok(fresh)
    }

    fn known(&self) -> OwnAddresses {
        self.known.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
