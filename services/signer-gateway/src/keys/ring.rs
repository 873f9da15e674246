//! The keys in memory while the gateway is unsealed: two branch keys per wallet group. Owns what sealing must wipe.
//! Never holds a seed or a wallet's own key for longer than the call that needs it.
//!
//! Where it could hurt: a request takes its key and waits behind others; meanwhile the gateway is sealed. So every key belongs
//! to the epoch between an unsealing and the next sealing, and says no once that is over; and nothing is taken into memory
//! under an epoch that is over, however long it took to open.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use types::id::WalletGroupId;

use super::{BranchKey, Coin, KeyError, LeafKey, RecoverableSignature, Seed};

/// Addresses are public and cost a point multiplication each; this many are remembered (about 5 MiB).
const REMEMBERED_ADDRESSES: usize = 65_536;

/// The time between an unsealing and the next sealing. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Epoch {
    over: Arc<AtomicBool>,
}

impl Epoch {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.over, &other.over)
    }
}

/// One wallet: its address body at once, its key only while signing, and no longer than its epoch.
#[derive(Debug)]
pub struct WalletKey {
    leaf: LeafKey,
    body: [u8; 20],
    epoch: Epoch,
}

impl WalletKey {
    pub fn address_body(&self) -> [u8; 20] {
        self.body
    }

    /// Signs a digest a builder made, unless the gateway was sealed since the key was taken.
    pub fn sign(&self, digest: [u8; 32]) -> Result<RecoverableSignature, KeyError> {
        if self.epoch.is_over() {
            return Err(KeyError::Sealed);
        }
        self.leaf.sign(digest)
    }

    #[cfg(test)]
    pub(crate) fn from_leaf(leaf: LeafKey) -> Self {
        let body = leaf.address_body().expect("address");
        Self { leaf, body, epoch: Epoch::default() }
    }
}

type AddressKey = (WalletGroupId, Coin, u32);

#[derive(Default)]
struct Branches {
    epoch: Epoch,
    of: HashMap<WalletGroupId, Arc<[BranchKey; 2]>>,
}

#[derive(Default)]
pub struct KeyRing {
    groups: RwLock<Branches>,
    addresses: RwLock<HashMap<AddressKey, [u8; 20]>>,
}

impl KeyRing {
    /// The present epoch; over as soon as the ring is cleared.
    pub fn epoch(&self) -> Epoch {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).epoch.clone()
    }

    /// Derives and keeps a group's branches, if `epoch` is still the present one.
    pub fn insert(&self, group: WalletGroupId, seed: &Seed, epoch: &Epoch) -> Result<(), KeyError> {
        let [ethereum, tron] = Coin::ALL;
        let branches = Arc::new([seed.branch(ethereum)?, seed.branch(tron)?]);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if !groups.epoch.is(epoch) {
            return Err(KeyError::Sealed);
        }
        groups.of.insert(group, branches);
        Ok(())
    }

    pub fn contains(&self, group: WalletGroupId) -> bool {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).of.contains_key(&group)
    }

    pub fn len(&self) -> usize {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wipes every key, and ends the use of those that were taken before: when this returns, nothing of them signs.
    pub fn clear(&self) {
        let ended = std::mem::take(&mut *self.groups.write().unwrap_or_else(PoisonError::into_inner));
        ended.epoch.over.store(true, Ordering::Release);
        drop(ended);
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn wallet(&self, group: WalletGroupId, coin: Coin, index: u32) -> Result<WalletKey, KeyError> {
        let (branches, epoch) = {
            let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
            (groups.of.get(&group).cloned().ok_or(KeyError::Sealed)?, groups.epoch.clone())
        };
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
        Ok(WalletKey { leaf, body, epoch })
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
        let epoch = ring.epoch();
        ring.insert(group, &seed, &epoch).expect("inserted");
        for _ in 0..2 {
            let wallet = ring.wallet(group, Coin::Ethereum, 0).expect("wallet");
            assert_eq!(hex::encode(wallet.address_body()), "f39fd6e51aad88f6f4ce6ab8827279cfffb92266");
        }
        let tron = ring.wallet(group, Coin::Tron, 0).expect("wallet");
        assert_eq!(hex::encode(tron.address_body()), "e2e1a54926527fbb4e4420de4c6bab82beaee24d");
        assert_eq!(ring.wallet(WalletGroupId::new(), Coin::Tron, 0).unwrap_err(), KeyError::Sealed);
        assert!(tron.sign([1; 32]).is_ok());
        ring.clear();
        assert!(ring.is_empty());
        assert_eq!(ring.wallet(group, Coin::Ethereum, 0).unwrap_err(), KeyError::Sealed);
        // A key that was taken before, and a group that was being opened.
        assert_eq!(tron.sign([1; 32]).unwrap_err(), KeyError::Sealed);
        assert_eq!(ring.insert(group, &seed, &epoch).unwrap_err(), KeyError::Sealed);
        ring.insert(group, &seed, &ring.epoch()).expect("inserted");
        assert!(ring.wallet(group, Coin::Tron, 0).expect("wallet").sign([1; 32]).is_ok());
        assert_eq!(
            tron.sign([1; 32]).unwrap_err(),
            KeyError::Sealed,
            "the next unsealing does not revive it"
        );
    }
}
