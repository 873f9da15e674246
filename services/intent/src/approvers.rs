//! The configured approvers, with the public keys that verify their signatures. The table can be replaced while the service
//! runs. It never holds a private key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use ed25519_dalek::VerifyingKey;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    pub key: VerifyingKey,
    /// Two names of one person count once, and neither can approve what that person requested.
    pub person: String,
}

/// Approvers by the name of their API key. Clones share one table.
#[derive(Debug, Clone, Default)]
pub struct Approvers {
    known: Arc<RwLock<BTreeMap<String, Approver>>>,
}

impl Approvers {
    pub fn new(known: BTreeMap<String, Approver>) -> Self {
        Self { known: Arc::new(RwLock::new(known)) }
    }

    pub fn replace(&self, known: BTreeMap<String, Approver>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    pub fn find(&self, name: &str) -> Option<Approver> {
        self.read(|known| known.get(name).cloned())
    }

    /// The person behind a name; a name that is not configured is a person of its own.
    pub fn person(&self, name: &str) -> String {
        self.find(name).map_or_else(|| name.to_owned(), |approver| approver.person)
    }

    /// The other names of the same person.
    pub fn aliases(&self, name: &str) -> Vec<String> {
        let person = self.person(name);
        self.read(|known| {
            let others = known.iter().filter(|(other, it)| *other != name && it.person == person);
            others.map(|(other, _)| other.clone()).collect()
        })
    }

    /// How many persons are behind these names; without names, behind all approvers.
    pub fn persons(&self, names: &[String]) -> usize {
        self.read(|known| {
            let chosen = known.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
            chosen.map(|(_, approver)| approver.person.as_str()).collect::<BTreeSet<_>>().len()
        })
    }

    pub fn is_known(&self, name: &str) -> bool {
        self.read(|known| known.contains_key(name))
    }

    pub fn count(&self) -> usize {
        self.read(BTreeMap::len)
    }

    fn read<T>(&self, query: impl FnOnce(&BTreeMap<String, Approver>) -> T) -> T {
        // The table is replaced as a whole, so a panic elsewhere cannot have left it half written.
        query(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The error says what is wrong with the key.
pub fn parse_key(text: &str) -> Result<VerifyingKey, String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| "must be 64 hexadecimal digits".to_owned())?;
    let key = VerifyingKey::from_bytes(&bytes).map_err(|_| "is not a point on the curve".to_owned())?;
    // Anybody can make signatures that verify with a key of small order.
    if key.is_weak() { Err("is a weak key".to_owned()) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_malformed_keys_are_refused() {
        let good = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert!(parse_key(good).is_ok());
        for bad in ["", &good[2..], &"0".repeat(64), &format!("01{}", "0".repeat(62)), &"z".repeat(64)] {
            assert!(parse_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_replaced_table_reaches_clones() {
        let approvers = Approvers::default();
        let clone = approvers.clone();
        let key = parse_key("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a").unwrap();
        let ann = Approver { key, person: "ann smith".to_owned() };
        approvers.replace(BTreeMap::from([("ann".to_owned(), ann.clone())]));
        assert!(clone.is_known("ann") && clone.find("ann") == Some(ann) && clone.count() == 1);
        assert_eq!((clone.person("ann").as_str(), clone.person("bob").as_str()), ("ann smith", "bob"));
    }
}
