//! Creating, importing and using groups; opening and closing the seal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use sqlx::PgPool;
use types::{Address, AddressFormat, WalletGroupId};
use zeroize::Zeroizing;

use super::repo::{NewGroup, StoredGroup};
use super::{DerivedAddress, FreshGroup, GroupError, GroupName, WalletGroup, repo};
use crate::audit::{self, Decision, draft};
use crate::builder::{self, NAMING_FORMAT, family};
use crate::keys::{Epoch, KeyRing, Seed, WalletKey, seed_from_phrase, seed_from_random};
use crate::policy::GroupPurpose;
use crate::seal::{KeySeal, SealBackend, SealError};

/// What opens sealed seeds, and until when what it opened may be used.
#[derive(Clone)]
struct OpenSeal {
    seal: Arc<dyn KeySeal>,
    epoch: Epoch,
}

/// The groups of this process's database, and the keys in its memory.
pub struct Groups {
    pool: PgPool,
    backend: SealBackend,
    ring: KeyRing,
    seal: RwLock<Option<OpenSeal>>,
    purposes: RwLock<HashMap<WalletGroupId, GroupPurpose>>,
    /// One at a time: each attempt takes the key derivation's memory.
    unsealing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl Groups {
    pub fn new(pool: PgPool, backend: SealBackend) -> Self {
        Self {
            pool,
            backend,
            ring: KeyRing::new(builder::families().map(|family| family.scheme().coin).collect()),
            seal: RwLock::new(None),
            purposes: RwLock::new(HashMap::new()),
            unsealing: tokio::sync::Mutex::new(()),
        }
    }

    pub fn is_sealed(&self) -> bool {
        self.seal.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Opens the seal and takes the keys into memory, of all groups or of none.
    pub async fn unseal(&self, caller: &str, unseal_key: Zeroizing<String>) -> Result<usize, GroupError> {
        let _one = self.unsealing.lock().await;
        let seal = match self.backend.open(&self.pool, unseal_key).await.map_err(GroupError::from) {
            Ok(seal) => seal,
            Err(error) => {
                if let GroupError::Seal(SealError::WrongKey | SealError::KeyTooShort) = error {
                    let draft = draft(caller, "unseal", Decision::Refused, "unseal.wrong_key", &json!({}));
                    audit::append(&self.pool, draft).await?;
                }
                return Err(error);
            }
        };
        let opened = OpenSeal { seal, epoch: self.ring.epoch() };
        let groups = repo::all(&self.pool).await?;
        let detail = json!({"groups": groups.len()});
        // The log comes first: no key may become usable without an entry in it.
        let draft = draft(caller, "unseal", Decision::Allowed, "unseal.opened", &detail);
        audit::append(&self.pool, draft).await?;
        // If one group does not open, or the caller goes away, the keys of the others must not stay in memory. A gateway that
        // was open before stays as it was.
        let mut unfinished = WipeOnDrop { ring: &self.ring, armed: self.is_sealed() };
        for stored in &groups {
            self.open_group(&opened, stored).await?;
        }
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        unfinished.armed = false;
        tracing::info!(groups = groups.len(), caller, "unsealed");
        Ok(groups.len())
    }

    /// Wipes every key from memory, whatever else happens. When it returns nothing is signed any more: keys that requests took
    /// before stop signing at once, and the new log entry makes a batch that was signed and not yet written start over.
    pub async fn seal(&self, caller: &str) -> Result<(), GroupError> {
        self.close();
        // An unsealing that was under way must not open it again afterwards.
        let _one = self.unsealing.lock().await;
        self.close();
        tracing::warn!(caller, "sealed");
        let draft = draft(caller, "seal", Decision::Allowed, "seal.closed", &json!({}));
        Ok(audit::append(&self.pool, draft).await?)
    }

    fn close(&self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.ring.clear();
    }

    /// Makes a group with a fresh seed. The phrase is returned on request, which the log records.
    pub async fn create(
        &self,
        caller: &str,
        fresh: &FreshGroup<'_>,
    ) -> Result<(WalletGroup, Option<Zeroizing<String>>), GroupError> {
        let (seed, phrase) = seed_from_random(fresh.words)?;
        let FreshGroup { name, purpose, reveal, .. } = *fresh;
        let new_group = GroupToStore { caller, name, purpose, action: "create_group", reveals: reveal };
        Ok((self.store(&new_group, &seed).await?, reveal.then_some(phrase)))
    }

    /// Makes a group from a phrase. The same name and phrase give the same group.
    pub async fn import(
        &self,
        caller: &str,
        name: &GroupName,
        purpose: GroupPurpose,
        phrase: &Phrase,
    ) -> Result<WalletGroup, GroupError> {
        let seed = seed_from_phrase(&phrase.words, &phrase.passphrase)?;
        let new_group = GroupToStore { caller, name, purpose, action: "import_group", reveals: false };
        match self.store(&new_group, &seed).await {
            Err(GroupError::Exists("name")) => self.existing(&new_group, &seed).await,
            other => other,
        }
    }

    async fn existing(&self, new_group: &GroupToStore<'_>, seed: &Seed) -> Result<WalletGroup, GroupError> {
        let Some(stored) = repo::by_name(&self.pool, new_group.name.as_str()).await? else {
            return Err(GroupError::Exists("name"));
        };
        if stored.fingerprint != fingerprint(seed)? {
            return Err(GroupError::Exists("name"));
        }
        if stored.group.purpose != new_group.purpose {
            return Err(GroupError::Exists("purpose"));
        }
        Ok(self.shown(stored.group))
    }

    async fn store(&self, new_group: &GroupToStore<'_>, seed: &Seed) -> Result<WalletGroup, GroupError> {
        let opened = self.opened()?;
        let id = WalletGroupId::new();
        let fingerprint = fingerprint(seed)?;
        let sealed = opened.seal.seal(seed.expose(), id).await?;
        let mut tx = db::begin(&self.pool).await?;
        let new = NewGroup {
            id,
            name: new_group.name.as_str(),
            purpose: new_group.purpose,
            fingerprint: &fingerprint,
            sealed: &sealed,
            created_by: new_group.caller,
        };
        repo::insert_in(&mut tx, &new).await?;
        let detail = json!({
            "wallet_group_id": id.to_string(),
            "name": new_group.name.as_str(),
            "purpose": new_group.purpose.into_str(),
            "first_address": fingerprint,
            "phrase_revealed": new_group.reveals,
        });
        let draft = draft(new_group.caller, new_group.action, Decision::Allowed, "group.stored", &detail);
        audit::append_in(&mut tx, draft).await?;
        tx.commit().await?;
        match self.keep(id, new_group.purpose, seed, &opened.epoch) {
            // Sealed meanwhile: the group is stored all the same, and opened with the others.
            Ok(()) | Err(GroupError::Sealed) => {}
            Err(error) => return Err(error),
        }
        let stored = repo::by_id(&self.pool, id).await?.ok_or(GroupError::Unknown(id))?;
        Ok(self.shown(stored.group))
    }

    pub async fn list(&self) -> Result<Vec<WalletGroup>, GroupError> {
        let stored = repo::all(&self.pool).await?;
        Ok(stored.into_iter().map(|stored| self.shown(stored.group)).collect())
    }

    pub async fn derive(
        &self,
        group: WalletGroupId,
        format: AddressFormat,
        indices: std::ops::Range<u32>,
    ) -> Result<Vec<DerivedAddress>, GroupError> {
        let mut addresses = Vec::with_capacity(indices.len());
        for index in indices {
            let (key, _) = self.wallet(group, format, index).await?;
            let path = family(format).scheme().path(index);
            addresses.push(DerivedAddress { index, address: key.address(), path });
        }
        Ok(addresses)
    }

    /// The first address of a group, by which a configuration lists it. It is derived, never read from the database.
    pub async fn first_address(&self, group: WalletGroupId) -> Result<Address, GroupError> {
        let (key, _) = self.wallet(group, NAMING_FORMAT, 0).await?;
        Ok(key.address())
    }

    pub async fn wallet(
        &self,
        group: WalletGroupId,
        format: AddressFormat,
        index: u32,
    ) -> Result<(WalletKey, GroupPurpose), GroupError> {
        let opened = self.opened()?;
        if !self.ring.contains(group) {
            // Made by another replica since this one was unsealed.
            let stored = repo::by_id(&self.pool, group).await?.ok_or(GroupError::Unknown(group))?;
            self.open_group(&opened, &stored).await?;
        }
        let purpose = self.purposes.read().unwrap_or_else(PoisonError::into_inner).get(&group).copied();
        let key = self.ring.wallet(group, &family(format).scheme(), index)?;
        Ok((key, purpose.ok_or(GroupError::Unknown(group))?))
    }

    async fn open_group(&self, opened: &OpenSeal, stored: &StoredGroup) -> Result<(), GroupError> {
        let id = stored.group.id;
        let bytes = opened.seal.open(&stored.sealed, id).await?;
        let seed = Seed::from_slice(&bytes).ok_or(GroupError::Corrupt("sealed_seed"))?;
        if fingerprint(&seed)? != stored.fingerprint {
            return Err(GroupError::Corrupt("fingerprint"));
        }
        self.keep(id, stored.group.purpose, &seed, &opened.epoch)
    }

    fn keep(
        &self,
        id: WalletGroupId,
        purpose: GroupPurpose,
        seed: &Seed,
        epoch: &Epoch,
    ) -> Result<(), GroupError> {
        self.purposes.write().unwrap_or_else(PoisonError::into_inner).insert(id, purpose);
        Ok(self.ring.insert(id, seed, epoch)?)
    }

    fn opened(&self) -> Result<OpenSeal, GroupError> {
        self.seal.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(GroupError::Sealed)
    }

    fn shown(&self, group: WalletGroup) -> WalletGroup {
        let unsealed = self.ring.contains(group.id);
        WalletGroup { unsealed, ..group }
    }
}

/// A BIP-39 phrase with its passphrase; wiped when dropped, never printed.
pub struct Phrase {
    words: Zeroizing<String>,
    passphrase: Zeroizing<String>,
}

impl Phrase {
    pub fn new(words: String, passphrase: String) -> Self {
        Self { words: Zeroizing::new(words), passphrase: Zeroizing::new(passphrase) }
    }
}

redact_debug!(Phrase);

struct GroupToStore<'a> {
    caller: &'a str,
    name: &'a GroupName,
    purpose: GroupPurpose,
    action: &'static str,
    reveals: bool,
}

/// Wipes what an unsealing has opened so far, if that ends early.
struct WipeOnDrop<'a> {
    ring: &'a KeyRing,
    armed: bool,
}

impl Drop for WipeOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.ring.clear();
        }
    }
}

fn fingerprint(seed: &Seed) -> Result<String, GroupError> {
    let scheme = family(NAMING_FORMAT).scheme();
    Ok(scheme.address_of(&seed.branch(scheme.coin)?.leaf(0)?)?.to_string())
}
