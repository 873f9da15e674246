//! Generated secrets of a stack: API keys, passwords of database roles. Made once and kept, so that a restart finds them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use rpc::auth::hash_key;

use super::SERVICES;
use super::databases::DATABASES;
use super::layout::write_private;
use crate::secrets;

/// The people of a development stack and what they may do.
pub const PEOPLE: [(&str, &str); 5] = [
    ("requester", "requester"),
    ("approver-1", "approver"),
    ("approver-2", "approver"),
    ("operator", "operator"),
    ("auditor", "auditor"),
];

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Keys {
    pub people: BTreeMap<String, String>,
    /// By service: what it shows to the others.
    pub services: BTreeMap<String, String>,
    pub database_passwords: BTreeMap<String, String>,
}

impl Keys {
    /// Reads the file and adds what is missing from it.
    pub fn keep(file: &Path) -> Result<Keys> {
        let mut keys: Keys = match std::fs::read_to_string(file) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Keys::default(),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
        };
        for (name, _) in PEOPLE {
            keys.people.entry(name.to_owned()).or_insert_with(new_key);
        }
        for service in SERVICES {
            keys.services.entry(service.to_owned()).or_insert_with(new_key);
        }
        for database in DATABASES {
            keys.database_passwords.entry(database.to_owned()).or_insert_with(secrets::random_hex);
        }
        write_private(file, &serde_json::to_string_pretty(&keys)?)?;
        Ok(keys)
    }

    pub fn of_service(&self, service: &str) -> String {
        self.services.get(service).cloned().unwrap_or_default()
    }

    /// What every service knows about its callers: name, hash of the key, roles.
    pub fn callers(&self) -> Vec<(String, String, String)> {
        let people = PEOPLE.iter().filter_map(|(name, role)| {
            self.people.get(*name).map(|key| ((*name).to_owned(), hash_key(key), (*role).to_owned()))
        });
        let services = self.services.iter().map(|(name, key)| {
            let role = format!("service:{name}");
            (role.clone(), hash_key(key), role)
        });
        people.chain(services).collect()
    }
}

fn new_key() -> String {
    format!("bk_{}", secrets::random_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys.json");
        let first = Keys::keep(&file).unwrap();
        let second = Keys::keep(&file).unwrap();
        assert_eq!(first.people, second.people);
        assert_eq!(first.services, second.services);
        assert_eq!(first.database_passwords, second.database_passwords);
        assert_eq!(first.people["requester"].len(), "bk_".len() + 64);
        assert_eq!(first.callers().len(), PEOPLE.len() + SERVICES.len());
    }

    #[test]
    fn services_are_told_hashes_and_never_keys() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::keep(&dir.path().join("keys.json")).unwrap();
        for (name, hash, _) in keys.callers() {
            assert_eq!(hash.len(), 64, "{name}");
            assert!(
                !keys.people.values().chain(keys.services.values()).any(|key| key.contains(&hash)),
                "{name}"
            );
        }
    }
}
