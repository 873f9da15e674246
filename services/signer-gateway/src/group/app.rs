//! Creating, importing and using groups; opening and closing the seal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use sqlx::PgPool;
use types::{Address, AddressFormat, WalletGroupId};
use zeroize::Zeroizing;

use super::repo::{NewGroup, StoredGroup};
use super::{DerivedAddress, FreshGroup, Group, GroupError, GroupName, repo};
use crate::audit::{self, Decision, Draft, draft};
use crate::keys::{Coin, Epoch, KeyRing, Seed, WalletKey, seed_from_phrase, seed_from_random};
use crate::policy::GroupPurpose;
use crate::seal::{KdfParams, KeySeal, LocalSeal, SealContext, SealError};

#[derive(Clone)]
struct Opened {
    seal: Arc<dyn KeySeal>,
    epoch: Epoch,
}

/// The groups of this process's database, and the keys in its memory.
pub struct Groups {
    pool: PgPool,
    kdf: KdfParams,
    ring: KeyRing,
    seal: RwLock<Option<Opened>>,
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
    pub fn new(pool: PgPool, kdf: KdfParams) -> Self {
        Self {
            pool,
            kdf,
            ring: KeyRing::default(),
            seal: RwLock::new(None),
            purposes: RwLock::new(HashMap::new()),
            unsealing: tokio::sync::Mutex::new(()),
        }
    }

    pub fn is_sealed(&self) -> bool {
        self.seal.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Opens the seal and takes every group's keys into memory: of all groups, or of none. The first unseal key ever given founds
    /// the keyring.
    pub async fn unseal(&self, caller: &str, unseal_key: Zeroizing<String>) -> Result<usize, GroupError> {
        let _one = self.unsealing.lock().await;
        let seal = match self.open_keyring(unseal_key).await {
            Ok(seal) => seal,
            Err(error) => {
                if let GroupError::Seal(SealError::WrongKey | SealError::KeyTooShort) = error {
                    self.note(draft(caller, "unseal", Decision::Refused, "unseal.wrong_key", &json!({})))
                        .await?;
                }
                return Err(error);
            }
        };
        let opened = Opened { seal: Arc::new(seal), epoch: self.ring.epoch() };
        let groups = repo::all(&self.pool).await?;
        let detail = json!({"groups": groups.len()});
        // The log comes first: keys that nobody was told of must not become usable.
        self.note(draft(caller, "unseal", Decision::Allowed, "unseal.opened", &detail)).await?;
        // One group that does not open, or a caller that goes away, must not leave the keys of the others behind. A gateway that
        // was open before stays as it was.
        let mut unfinished = Unfinished { ring: &self.ring, wipes: self.is_sealed() };
        for stored in &groups {
            self.open_group(&opened, stored).await?;
        }
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        unfinished.wipes = false;
        tracing::info!(groups = groups.len(), caller, "unsealed");
        Ok(groups.len())
    }

    async fn open_keyring(&self, unseal_key: Zeroizing<String>) -> Result<LocalSeal, GroupError> {
        let keyring = repo::keyring(&self.pool).await?;
        let kdf = self.kdf;
        let key = unseal_key.clone();
        let opened = match keyring {
            Some(keyring) => {
                return blocking(move || LocalSeal::unlock(unseal_key.as_bytes(), &keyring)).await;
            }
            None => blocking(move || LocalSeal::create(key.as_bytes(), kdf)).await?,
        };
        repo::insert_keyring(&self.pool, &opened.1).await?;
        // Another replica may have founded the keyring meanwhile: only what is stored counts.
        match repo::keyring(&self.pool).await? {
            Some(stored) if stored == opened.1 => Ok(opened.0),
            Some(stored) => blocking(move || LocalSeal::unlock(unseal_key.as_bytes(), &stored)).await,
            None => Err(GroupError::Corrupt("keyring")),
        }
    }

    /// Wipes every key from memory, whatever else happens. When it returns nothing is signed any more: keys that requests took
    /// before are useless at once, and the log's entry makes a batch that was signed and not yet written start over.
    pub async fn seal(&self, caller: &str) -> Result<(), GroupError> {
        self.close();
        // An unsealing that was under way must not finish behind our back.
        let _one = self.unsealing.lock().await;
        self.close();
        tracing::warn!(caller, "sealed");
        self.note(draft(caller, "seal", Decision::Allowed, "seal.closed", &json!({}))).await
    }

    fn close(&self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.ring.clear();
    }

    /// Makes a group with a fresh seed. The phrase is returned if it was asked for, which the log tells.
    pub async fn create(
        &self,
        caller: &str,
        fresh: &FreshGroup<'_>,
    ) -> Result<(Group, Option<Zeroizing<String>>), GroupError> {
        let (seed, phrase) = seed_from_random(fresh.words)?;
        let FreshGroup { name, purpose, reveal, .. } = *fresh;
        let draft = Intake { caller, name, purpose, action: "create_group", reveals: reveal };
        Ok((self.store(&draft, &seed).await?, reveal.then_some(phrase)))
    }

    /// Makes a group from a phrase. The same name and phrase give the same group.
    pub async fn import(
        &self,
        caller: &str,
        name: &GroupName,
        purpose: GroupPurpose,
        phrase: &Phrase,
    ) -> Result<Group, GroupError> {
        let seed = seed_from_phrase(&phrase.words, &phrase.passphrase)?;
        let draft = Intake { caller, name, purpose, action: "import_group", reveals: false };
        match self.store(&draft, &seed).await {
            Err(GroupError::Exists("name")) => self.existing(&draft, &seed).await,
            other => other,
        }
    }

    async fn existing(&self, intake: &Intake<'_>, seed: &Seed) -> Result<Group, GroupError> {
        let Some(stored) = repo::by_name(&self.pool, intake.name.as_str()).await? else {
            return Err(GroupError::Exists("name"));
        };
        if stored.fingerprint != fingerprint(seed)? {
            return Err(GroupError::Exists("name"));
        }
        if stored.group.purpose != intake.purpose {
            return Err(GroupError::Exists("purpose"));
        }
        Ok(self.shown(stored.group))
    }

    async fn store(&self, intake: &Intake<'_>, seed: &Seed) -> Result<Group, GroupError> {
        let opened = self.opened()?;
        let id = WalletGroupId::new();
        let fingerprint = fingerprint(seed)?;
        let sealed = opened.seal.seal(seed.expose(), SealContext::current(id)).await?;
        let mut tx = db::begin(&self.pool).await?;
        let new = NewGroup {
            id,
            name: intake.name.as_str(),
            purpose: intake.purpose,
            fingerprint: &fingerprint,
            sealed: &sealed,
            created_by: intake.caller,
        };
        repo::insert_in(&mut tx, &new).await?;
        let detail = json!({
            "wallet_group_id": id.to_string(),
            "name": intake.name.as_str(),
            "purpose": intake.purpose.as_str(),
            "first_address": fingerprint,
            "phrase_revealed": intake.reveals,
        });
        let draft = draft(intake.caller, intake.action, Decision::Allowed, "group.stored", &detail);
        audit::append_in(&mut tx, vec![draft]).await?;
        tx.commit().await?;
        match self.keep(id, intake.purpose, seed, &opened.epoch) {
            // Sealed meanwhile: the group is stored all the same, and opened with the others.
            Ok(()) | Err(GroupError::Sealed) => {}
            Err(error) => return Err(error),
        }
        let stored = repo::by_id(&self.pool, id).await?.ok_or(GroupError::Unknown(id))?;
        Ok(self.shown(stored.group))
    }

    pub async fn list(&self) -> Result<Vec<Group>, GroupError> {
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
            let address = Address::from_body(format, key.address_body());
            addresses.push(DerivedAddress { index, address, path: coin(format).path(index) });
        }
        Ok(addresses)
    }

    /// The first EVM address of a group, derived and not read: the name by which a configuration lists it.
    pub async fn first_address(&self, group: WalletGroupId) -> Result<Address, GroupError> {
        let (key, _) = self.wallet(group, AddressFormat::Evm, 0).await?;
        Ok(Address::from_body(AddressFormat::Evm, key.address_body()))
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
        let key = self.ring.wallet(group, coin(format), index)?;
        Ok((key, purpose.ok_or(GroupError::Unknown(group))?))
    }

    async fn open_group(&self, opened: &Opened, stored: &StoredGroup) -> Result<(), GroupError> {
        let id = stored.group.id;
        let context = SealContext { group: id, version: stored.sealed.version };
        let bytes = opened.seal.open(&stored.sealed, context).await?;
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

    fn opened(&self) -> Result<Opened, GroupError> {
        self.seal.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(GroupError::Sealed)
    }

    fn shown(&self, group: Group) -> Group {
        let unsealed = self.ring.contains(group.id);
        Group { unsealed, ..group }
    }

    async fn note(&self, draft: Draft) -> Result<(), GroupError> {
        let mut tx = db::begin(&self.pool).await?;
        audit::append_in(&mut tx, vec![draft]).await?;
        Ok(tx.commit().await?)
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

impl fmt::Debug for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phrase(..)")
    }
}

struct Intake<'a> {
    caller: &'a str,
    name: &'a GroupName,
    purpose: GroupPurpose,
    action: &'static str,
    reveals: bool,
}

/// An unsealing under way. Dropped before its end, it wipes what was opened so far.
struct Unfinished<'a> {
    ring: &'a KeyRing,
    wipes: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.wipes {
            self.ring.clear();
        }
    }
}

fn coin(format: AddressFormat) -> Coin {
    match format {
        AddressFormat::Evm => Coin::Ethereum,
        AddressFormat::Tron => Coin::Tron,
    }
}

fn fingerprint(seed: &Seed) -> Result<String, GroupError> {
    let body = seed.branch(Coin::Ethereum)?.leaf(0)?.address_body()?;
    Ok(Address::from_body(AddressFormat::Evm, body).to_string())
}

/// Key derivation takes a tenth of a second of pure computation: not on a thread that serves requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SealError> + Send + 'static,
) -> Result<T, GroupError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(GroupError::Corrupt("key derivation")),
    }
}
