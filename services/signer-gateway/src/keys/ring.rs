//! The keys in memory while the gateway is unsealed: for each wallet group one branch key for each family of chains. Owns what
//! sealing must wipe. Never holds a seed or a wallet's own key for longer than the call that needs it.
//!
//! The danger: a request takes its key and waits behind others; meanwhile the gateway is sealed. Therefore every key belongs to
//! the epoch between an unsealing and the next sealing and refuses to sign once that is over; and nothing is taken into memory
//! under an epoch that is over, however long it took to open.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use types::Address;
use types::id::WalletGroupId;

use super::{BranchKey, KeyError, LeafKey, RecoverableSignature, Scheme, Seed};

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

/// One wallet: its address at once, its key only while signing, and no longer than its epoch.
#[derive(Debug)]
pub struct WalletKey {
    leaf: LeafKey,
    address: Address,
    epoch: Epoch,
}

impl WalletKey {
    pub fn address(&self) -> Address {
        self.address
    }

    /// Signs a digest a builder made, unless the gateway was sealed since the key was taken.
    pub fn sign(&self, digest: [u8; 32]) -> Result<RecoverableSignature, KeyError> {
        if self.epoch.is_over() {
            return Err(KeyError::Sealed);
        }
        self.leaf.sign(digest)
    }

    #[cfg(test)]
    pub(crate) fn from_leaf(leaf: LeafKey, scheme: &Scheme) -> Self {
        let address = scheme.address_of(&leaf).expect("address");
        Self { leaf, address, epoch: Epoch::default() }
    }
}

/// Group, coin and index.
type AddressKey = (WalletGroupId, u32, u32);

#[derive(Default)]
struct UnsealedGroups {
    epoch: Epoch,
    /// The branches of each group by their coin.
    branches: HashMap<WalletGroupId, Arc<HashMap<u32, BranchKey>>>,
}

pub struct KeyRing {
    coins: Vec<u32>,
    groups: RwLock<UnsealedGroups>,
    addresses: RwLock<HashMap<AddressKey, Address>>,
}

impl KeyRing {
    /// An empty ring that will hold the branches of these coins.
    pub fn new(coins: Vec<u32>) -> Self {
        Self { coins, groups: RwLock::default(), addresses: RwLock::default() }
    }

    /// The present epoch; over as soon as the ring is cleared.
    pub fn epoch(&self) -> Epoch {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).epoch.clone()
    }

    /// Derives and keeps a group's branches, if `epoch` is still the present one.
    pub fn insert(&self, group: WalletGroupId, seed: &Seed, epoch: &Epoch) -> Result<(), KeyError> {
        let branches = self.coins.iter().map(|coin| Ok((*coin, seed.branch(*coin)?)));
        let branches = Arc::new(branches.collect::<Result<HashMap<_, _>, KeyError>>()?);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if !groups.epoch.is(epoch) {
            return Err(KeyError::Sealed);
        }
        groups.branches.insert(group, branches);
        Ok(())
    }

    pub fn contains(&self, group: WalletGroupId) -> bool {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).branches.contains_key(&group)
    }

    fn len(&self) -> usize {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).branches.len()
    }

    /// Wipes every key, and ends the use of those that were taken before: when this returns, nothing of them signs.
    pub fn clear(&self) {
        let ended = std::mem::take(&mut *self.groups.write().unwrap_or_else(PoisonError::into_inner));
        ended.epoch.over.store(true, Ordering::Release);
        drop(ended);
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn wallet(&self, group: WalletGroupId, scheme: &Scheme, index: u32) -> Result<WalletKey, KeyError> {
        let (branches, epoch) = {
            let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
            (groups.branches.get(&group).cloned().ok_or(KeyError::Sealed)?, groups.epoch.clone())
        };
        let leaf = branches.get(&scheme.coin).ok_or(KeyError::Sealed)?.leaf(index)?;
        let key = (group, scheme.coin, index);
        let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let address = match known {
            Some(address) => address,
            None => {
                let address = scheme.address_of(&leaf)?;
                self.remember(key, address);
                address
            }
        };
        Ok(WalletKey { leaf, address, epoch })
    }

    fn remember(&self, key: AddressKey, address: Address) {
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        // Starting over is cheaper than tracking use: hot wallets return to the map with their next signature.
        if addresses.len() >= REMEMBERED_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(key, address);
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("groups", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use types::AddressFormat;

    use super::*;
    use crate::builder::family;
    use crate::keys::seed_from_phrase;

    #[test]
    fn keys_are_gone_after_sealing_and_back_after_unsealing() {
        let seed = seed_from_phrase("test test test test test test test test test test test junk", "")
            .expect("seed");
        let [evm, tron] = [AddressFormat::Evm, AddressFormat::Tron].map(|format| family(format).scheme());
        let ring = KeyRing::new(vec![evm.coin, tron.coin]);
        let group = WalletGroupId::new();
        assert_eq!(ring.wallet(group, &evm, 0).unwrap_err(), KeyError::Sealed);
        let epoch = ring.epoch();
        ring.insert(group, &seed, &epoch).expect("inserted");
        for _ in 0..2 {
            let wallet = ring.wallet(group, &evm, 0).expect("wallet");
            assert_eq!(wallet.address().to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        }
        let taken = ring.wallet(group, &tron, 0).expect("wallet");
        assert_eq!(taken.address().to_string(), "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6");
        assert_eq!(ring.wallet(WalletGroupId::new(), &tron, 0).unwrap_err(), KeyError::Sealed);
        assert!(taken.sign([1; 32]).is_ok());
        ring.clear();
        assert_eq!(ring.len(), 0);
        assert_eq!(ring.wallet(group, &evm, 0).unwrap_err(), KeyError::Sealed);
        // A key that was taken before, and a group that was being opened.
        assert_eq!(taken.sign([1; 32]).unwrap_err(), KeyError::Sealed);
        assert_eq!(ring.insert(group, &seed, &epoch).unwrap_err(), KeyError::Sealed);
        ring.insert(group, &seed, &ring.epoch()).expect("inserted");
        assert!(ring.wallet(group, &tron, 0).expect("wallet").sign([1; 32]).is_ok());
        let revived = taken.sign([1; 32]);
        assert_eq!(revived.unwrap_err(), KeyError::Sealed, "the next unsealing does not revive it");
    }
}
