//! The people who may approve, with the public keys that their signatures are checked against.
//!
//! Owns the table from configuration, which can be replaced while the service runs. It never holds a private key.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ed25519_dalek::VerifyingKey;

/// Public keys by name. Names are those of the approvers' API keys. Clones share one table.
#[derive(Debug, Clone, Default)]
pub struct Approvers {
    keys: Arc<RwLock<BTreeMap<String, VerifyingKey>>>,
}

impl Approvers {
    pub fn new(keys: BTreeMap<String, VerifyingKey>) -> Self {
        Self { keys: Arc::new(RwLock::new(keys)) }
    }

    /// Replaces the table for every decision from now on.
    pub fn replace(&self, keys: BTreeMap<String, VerifyingKey>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub fn key(&self, name: &str) -> Option<VerifyingKey> {
        self.read(|keys| keys.get(name).copied())
    }

    pub fn is_known(&self, name: &str) -> bool {
        self.read(|keys| keys.contains_key(name))
    }

    pub fn count(&self) -> usize {
        self.read(BTreeMap::len)
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, VerifyingKey>) -> T) -> T {
        // The table is replaced whole: a panic elsewhere cannot have left it half written.
        look(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads a public key of 64 hexadecimal digits; the error says what is wrong.
pub fn read_key(text: &str) -> Result<VerifyingKey, String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| "must be 64 hexadecimal digits".to_owned())?;
    let key = VerifyingKey::from_bytes(&bytes).map_err(|_| "is not a point on the curve".to_owned())?;
    // Anybody can make signatures that verify under a key of small order.
    if key.is_weak() { Err("is a weak key".to_owned()) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_malformed_keys_are_refused() {
        let good = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert!(read_key(good).is_ok());
        for bad in ["", &good[2..], &"0".repeat(64), &format!("01{}", "0".repeat(62)), &"z".repeat(64)] {
            assert!(read_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_replaced_table_reaches_clones() {
        let approvers = Approvers::default();
        let clone = approvers.clone();
        let key = read_key("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a").unwrap();
        approvers.replace(BTreeMap::from([("ann".to_owned(), key)]));
        assert!(clone.is_known("ann") && clone.key("ann") == Some(key) && clone.count() == 1);
    }
}
