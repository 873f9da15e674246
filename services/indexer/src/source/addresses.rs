//! A source's own addresses in memory: a filter that replaces one node query per address.
//!
//! The node returns the events of a contract for all addresses, and events about other addresses are dropped here. A lookup
//! hashes twenty bytes, so a hundred thousand addresses cost no more than ten.
//!
//! Invariant: the set of a version holds every address of every call that had ended when the source's cursor had that version.
//! Calls may overlap, in one process or many: a call is announced in the cursor before its first address is stored
//! (`RangeRepo::begin_adding`), and it ends under a version above all others.

use std::sync::{Arc, PoisonError, RwLock};

use alloy_primitives::map::AddressHashSet;
use alloy_primitives::{Address, B256};

use super::SourceRepo;
use crate::store::StoreError;

/// The addresses of one version. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnAddresses {
    pub(crate) version: i64,
    /// Addresses that are not in the set have this version or a later one.
    floor: i64,
    set: Arc<AddressHashSet>,
}

impl OwnAddresses {
    /// Whether an indexed address, as a topic holds it, is ours.
    pub(crate) fn holds(&self, topic: &B256) -> bool {
        // The upper twelve bytes of an address in a topic are zero; anything else is not an address.
        topic[..12].iter().all(|byte| *byte == 0) && self.set.contains(&Address::from_slice(&topic[12..]))
    }
}

/// The newest set of one source, shared by its workers in this process.
#[derive(Debug)]
pub(crate) struct AddressBook {
    source: u32,
    repo: SourceRepo,
    known: RwLock<OwnAddresses>,
    /// One worker reads at a time; the others wait for its result.
    reading: tokio::sync::Mutex<()>,
}

impl AddressBook {
    pub(crate) fn new(source: u32, repo: SourceRepo) -> Self {
        Self { source, repo, known: RwLock::default(), reading: tokio::sync::Mutex::new(()) }
    }

    /// The set of at least this version; reads only what may be new. `version` and `floor` were read from the cursor together:
    /// an address that was not stored by then belongs to a call that had not ended, and has `floor` or a later version.
    pub(crate) async fn at(&self, version: i64, floor: i64) -> Result<OwnAddresses, StoreError> {
        let known = self.known();
        if known.version >= version {
            return Ok(known);
        }
        let _alone = self.reading.lock().await;
        let known = self.known();
        if known.version >= version {
            return Ok(known);
        }
        let new = self.repo.addresses_from(self.source, known.floor).await?;
        let mut set = AddressHashSet::clone(&known.set);
        set.extend(new);
        let fresh = OwnAddresses { version, floor, set: Arc::new(set) };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        Ok(fresh)
    }

    fn known(&self) -> OwnAddresses {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::RangeRepo;
    use crate::source::testing::deposits;
    use crate::store::testing::store;

    fn address(of: u64) -> Address {
        Address::left_padding_from(&of.to_be_bytes())
    }

    #[tokio::test]
    async fn a_call_that_many_others_overtake_takes_effect_in_the_end() {
        let (store, source) = (store().await, deposits());
        let (ranges, repo) = (RangeRepo::new(store.clone()), SourceRepo::new(store));
        ranges.seed(&source).await.unwrap();
        let book = AddressBook::new(source.number, repo.clone());
        let newest = || async {
            let cursor = ranges.cursor("deposits").await.unwrap().unwrap();
            book.at(cursor.address_version, cursor.address_floor()).await.unwrap()
        };
        let slow = ranges.begin_adding("deposits").await.unwrap();
        for other in 0..100 {
            let call = ranges.begin_adding("deposits").await.unwrap();
            assert_eq!(repo.put_addresses(&source, call, &[address(other)]).await.unwrap(), 1);
            assert_eq!(ranges.end_adding("deposits", call).await.unwrap(), Some(0));
            assert!(newest().await.holds(&address(other).into_word()));
        }
        let before = newest().await;
        assert!(!before.holds(&address(1_000).into_word()));
        // Overtaken by a hundred, it still ends under a version of its own, and its addresses are found.
        repo.put_addresses(&source, slow, &[address(1_000), address(5)]).await.unwrap();
        assert_eq!(ranges.end_adding("deposits", slow).await.unwrap(), Some(0));
        let after = newest().await;
        assert!(after.version > before.version);
        assert!(after.holds(&address(1_000).into_word()) && after.holds(&address(5).into_word()));
        // With no call in progress, only new addresses are read the next time.
        assert!(repo.addresses_from(source.number, after.floor).await.unwrap().is_empty());
        assert_eq!(ranges.end_adding("deposits", slow).await.unwrap(), None, "it ended before");
    }
}
