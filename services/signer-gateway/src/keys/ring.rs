//! The keys in memory while the gateway is unsealed: two branch keys per wallet group. Owns what sealing must wipe.
//! Never holds a seed or a wallet's own key for longer than the call that needs it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use types::id::WalletGroupId;

use super::{BranchKey, Coin, KeyError, LeafKey, RecoverableSignature, Seed};

/// Addresses are public and cost a point multiplication each; this many are remembered (about 5 MiB).
const REMEMBERED_ADDRESSES: usize = 65_536;

/// One wallet: its address body at once, its key only while signing.
#[derive(Debug)]
pub struct WalletKey {
    leaf: LeafKey,
    body: [u8; 20],
}

impl WalletKey {
    /// Body of the wallet's address.
    pub fn address_body(&self) -> [u8; 20] {
        self.body
    }

    /// Signs a digest a builder made.
    pub fn sign(&self, digest: [u8; 32]) -> Result<RecoverableSignature, KeyError> {
        self.leaf.sign(digest)
    }

    #[cfg(test)]
    pub(crate) fn from_leaf(leaf: LeafKey) -> Self {
        let body = leaf.address_body().expect("address");
        Self { leaf, body }
    }
}

type AddressKey = (WalletGroupId, Coin, u32);

/// All unsealed groups.
#[derive(Default)]
pub struct KeyRing {
    groups: RwLock<HashMap<WalletGroupId, Arc<[BranchKey; 2]>>>,
    addresses: RwLock<HashMap<AddressKey, [u8; 20]>>,
}

impl KeyRing {
    /// Derives and keeps a group's branches.
    pub fn insert(&self, group: WalletGroupId, seed: &Seed) -> Result<(), KeyError> {
        let [ethereum, tron] = Coin::ALL;
        let branches = Arc::new([seed.branch(ethereum)?, seed.branch(tron)?]);
        self.groups.write().unwrap_or_else(PoisonError::into_inner).insert(group, branches);
        Ok(())
    }

    /// Whether the group's keys are in memory.
    pub fn contains(&self, group: WalletGroupId) -> bool {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).contains_key(&group)
    }

    /// How many groups are in memory.
    pub fn len(&self) -> usize {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no group is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wipes every key.
    pub fn clear(&self) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The wallet at `index` of a group's branch.
    pub fn wallet(&self, group: WalletGroupId, coin: Coin, index: u32) -> Result<WalletKey, KeyError> {
        let branches = self
            .groups
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&group)
            .cloned()
            .ok_or(KeyError::Sealed)?;
        let leaf = match coin {
            Coin::Ethereum => branches[0].leaf(index)?,
            Coin::Tron => branches[1].leaf(index)?,
        };
        let key = (group, coin, index);
        let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let body = match known {
            Some(body) => body,
            None => {
                let body = leaf.address_body()?;
                self.remember(key, body);
                body
            }
        };
        Ok(WalletKey { leaf, body })
    }

    fn remember(&self, key: AddressKey, body: [u8; 20]) {
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        // Starting over is cheaper than tracking use: hot wallets return to the map with their next signature.
        if addresses.len() >= REMEMBERED_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(key, body);
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("groups", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::seed_from_phrase;

    #[test]
    fn keys_are_gone_after_sealing_and_back_after_unsealing() {
        let seed = seed_from_phrase("test test test test test test test test test test test junk", "")
            .expect("seed");
        let ring = KeyRing::default();
        let group = WalletGroupId::new();
        assert_eq!(ring.wallet(group, Coin::Ethereum, 0).unwrap_err(), KeyError::Sealed);
        ring.insert(group, &seed).expect("inserted");
        for _ in 0..2 {
            let wallet = ring.wallet(group, Coin::Ethereum, 0).expect("wallet");
            assert_eq!(hex::encode(wallet.address_body()), "f39fd6e51aad88f6f4ce6ab8827279cfffb92266");
        }
        let tron = ring.wallet(group, Coin::Tron, 0).expect("wallet");
        assert_eq!(hex::encode(tron.address_body()), "e2e1a54926527fbb4e4420de4c6bab82beaee24d");
        assert_eq!(ring.wallet(WalletGroupId::new(), Coin::Tron, 0).unwrap_err(), KeyError::Sealed);
        ring.clear();
        assert!(ring.is_empty());
        assert_eq!(ring.wallet(group, Coin::Ethereum, 0).unwrap_err(), KeyError::Sealed);
    }
}
