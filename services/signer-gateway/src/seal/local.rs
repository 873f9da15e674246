//! The local seal: Argon2id turns the operator's unseal key into a key-encryption key, XChaCha20-Poly1305 seals
//! each secret under it. Parameters and salt are stored in the database as the [`Keyring`]; the derived key is only ever
//! in zeroized memory.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use futures::future::BoxFuture;
use rand::TryRngCore;
use rand::rngs::OsRng;
use service::config::Reader;
use sqlx::PgPool;
use types::id::WalletGroupId;
use zeroize::Zeroizing;

use super::{KeySeal, SealError, SealedSecret, UnsealError, associated_data, repo};

/// Shorter unseal keys are refused: they can be guessed whatever the derivation costs.
pub(super) const MIN_KEY_BYTES: usize = 16;

/// The layout that this backend writes.
const VERSION: u16 = 1;
const VERIFIER_TEXT: &[u8] = b"bursar keyring";
const VERIFIER_AAD: &[u8] = b"bursar/keyring-verifier/v1";
/// A gibibyte bounds what an edited row can make the process allocate.
const MAX_MEMORY_KIB: u32 = 1024 * 1024;
const MAX_ITERATIONS: u32 = 64;
const MAX_PARALLELISM: u32 = 16;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 24;

/// Cost of turning the unseal key into the key-encryption key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfParams {
    pub memory_kib: u32,
    pub iterations: u32,
    pub parallelism: u32,
}

impl KdfParams {
    /// OWASP's second recommended setting doubled in memory: about a tenth of a second on one core.
    pub const DEFAULT: Self = Self { memory_kib: 64 * 1024, iterations: 3, parallelism: 1 };
    /// The cheapest cost accepted, so that a row edited in the database cannot weaken the next seal.
    pub const FLOOR: Self = Self { memory_kib: 8 * 1024, iterations: 1, parallelism: 1 };

    pub(super) fn read(section: &Reader) -> Self {
        let (floor, default) = (Self::FLOOR, Self::DEFAULT);
        Self {
            memory_kib: section.within("memory_kib", default.memory_kib, floor.memory_kib..=MAX_MEMORY_KIB),
            iterations: section.within("iterations", default.iterations, floor.iterations..=MAX_ITERATIONS),
            parallelism: section.within("parallelism", default.parallelism, 1..=MAX_PARALLELISM),
        }
    }

    fn checked(self) -> Result<Params, SealError> {
        let too_cheap = self.memory_kib < Self::FLOOR.memory_kib || self.iterations < Self::FLOOR.iterations;
        let too_expensive = self.memory_kib > MAX_MEMORY_KIB
            || self.iterations > MAX_ITERATIONS
            || self.parallelism > MAX_PARALLELISM;
        if too_cheap || too_expensive {
            return Err(SealError::BadParameters);
        }
        Params::new(self.memory_kib, self.iterations, self.parallelism, Some(32))
            .map_err(|_| SealError::BadParameters)
    }
}

/// What is stored with the sealed secrets: how the key is derived, and a value that only the right key opens.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keyring {
    pub(super) params: KdfParams,
    pub(super) salt: Vec<u8>,
    /// Known text sealed under the key; distinguishes a wrong key from a corrupt secret.
    pub(super) verifier: SealedSecret,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("params", &self.params).finish_non_exhaustive()
    }
}

pub(super) struct LocalSeal {
    key: Zeroizing<[u8; 32]>,
}

redact_debug!(LocalSeal);

impl LocalSeal {
    /// Starts a new keyring under `unseal_key`. Blocks for the derivation.
    fn create(unseal_key: &[u8], params: KdfParams) -> Result<(Self, Keyring), SealError> {
        let mut salt = vec![0u8; SALT_BYTES];
        fill_random(&mut salt)?;
        let seal = Self { key: derive(unseal_key, &salt, params)? };
        let verifier = seal.encrypt(VERIFIER_TEXT, VERIFIER_AAD)?;
        Ok((seal, Keyring { params, salt, verifier }))
    }

    /// Opens an existing keyring; distinguishes a wrong key from damage. Blocks for the derivation.
    fn unlock(unseal_key: &[u8], keyring: &Keyring) -> Result<Self, SealError> {
        let seal = Self { key: derive(unseal_key, &keyring.salt, keyring.params)? };
        match seal.decrypt(&keyring.verifier, VERIFIER_AAD) {
            Ok(text) if text.as_slice() == VERIFIER_TEXT => Ok(seal),
            Ok(_) | Err(SealError::Corrupt) => Err(SealError::WrongKey),
            Err(other) => Err(other),
        }
    }

    fn encrypt(&self, secret: &[u8], aad: &[u8]) -> Result<SealedSecret, SealError> {
        let mut nonce = vec![0u8; NONCE_BYTES];
        fill_random(&mut nonce)?;
        let ciphertext = self
            .cipher()
            .encrypt(XNonce::from_slice(&nonce), Payload { msg: secret, aad })
            .map_err(|_| SealError::Corrupt)?;
        Ok(SealedSecret { version: VERSION, nonce, ciphertext })
    }

    fn decrypt(&self, sealed: &SealedSecret, aad: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        if sealed.version != VERSION {
            return Err(SealError::UnknownVersion(sealed.version));
        }
        if sealed.nonce.len() != NONCE_BYTES {
            return Err(SealError::Corrupt);
        }
        self.cipher()
            .decrypt(XNonce::from_slice(&sealed.nonce), Payload { msg: &sealed.ciphertext, aad })
            .map(Zeroizing::new)
            .map_err(|_| SealError::Corrupt)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.as_slice().into())
    }
}

impl KeySeal for LocalSeal {
    fn seal<'a>(
        &'a self,
        secret: &'a [u8],
        group: WalletGroupId,
    ) -> BoxFuture<'a, Result<SealedSecret, SealError>> {
        Box::pin(async move { self.encrypt(secret, &associated_data(group, VERSION)) })
    }

    fn open<'a>(
        &'a self,
        sealed: &'a SealedSecret,
        group: WalletGroupId,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SealError>> {
        Box::pin(async move { self.decrypt(sealed, &associated_data(group, sealed.version)) })
    }
}

/// Opens the keyring. The first unseal key ever given creates it.
pub(super) async fn open(
    pool: &PgPool,
    kdf: KdfParams,
    unseal_key: Zeroizing<String>,
) -> Result<LocalSeal, UnsealError> {
    let keyring = match repo::keyring(pool).await? {
        Some(keyring) => keyring,
        None => {
            let key = unseal_key.clone();
            let (seal, created) = blocking(move || LocalSeal::create(key.as_bytes(), kdf)).await?;
            repo::insert_keyring(pool, &created).await?;
            // Another replica may have created the keyring meanwhile: only what is stored counts.
            match repo::keyring(pool).await? {
                Some(stored) if stored == created => return Ok(seal),
                Some(stored) => stored,
                None => return Err(SealError::Keyring.into()),
            }
        }
    };
    Ok(blocking(move || LocalSeal::unlock(unseal_key.as_bytes(), &keyring)).await?)
}

/// Key derivation computes for a tenth of a second, so it must not run on a thread that serves requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SealError> + Send + 'static,
) -> Result<T, SealError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(SealError::Keyring))
}

fn derive(unseal_key: &[u8], salt: &[u8], params: KdfParams) -> Result<Zeroizing<[u8; 32]>, SealError> {
    if unseal_key.len() < MIN_KEY_BYTES {
        return Err(SealError::KeyTooShort);
    }
    let params = params.checked()?;
    // Wiped as well: the key is a hash of its last blocks.
    let mut memory = Zeroizing::new(vec![Block::default(); params.block_count()]);
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut key = Zeroizing::new([0u8; 32]);
    argon
        .hash_password_into_with_memory(unseal_key, salt, key.as_mut(), memory.as_mut_slice())
        .map_err(|_| SealError::BadParameters)?;
    Ok(key)
}

fn fill_random(bytes: &mut [u8]) -> Result<(), SealError> {
    OsRng.try_fill_bytes(bytes).map_err(|_| SealError::NoRandomness)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"correct horse battery staple";

    fn cheap() -> (LocalSeal, Keyring) {
        LocalSeal::create(KEY, KdfParams::FLOOR).expect("keyring")
    }

    #[tokio::test]
    async fn a_secret_opens_with_the_same_key_after_a_restart() {
        let (seal, keyring) = cheap();
        let group = WalletGroupId::new();
        let sealed = seal.seal(b"sixty-four bytes of seed", group).await.expect("sealed");
        drop(seal);
        let again = LocalSeal::unlock(KEY, &keyring).expect("unlocked");
        assert_eq!(again.open(&sealed, group).await.expect("opened").as_slice(), b"sixty-four bytes of seed");
    }

    #[test]
    fn a_wrong_key_is_told_apart_from_damage() {
        let (_, keyring) = cheap();
        assert_eq!(LocalSeal::unlock(b"another key of length", &keyring).unwrap_err(), SealError::WrongKey);
        assert_eq!(LocalSeal::unlock(b"short", &keyring).unwrap_err(), SealError::KeyTooShort);
    }

    #[tokio::test]
    async fn a_secret_never_opens_for_another_group_or_version_or_after_an_edit() {
        let (seal, _) = cheap();
        let group = WalletGroupId::new();
        let sealed = seal.seal(b"seed", group).await.expect("sealed");
        assert_eq!(seal.open(&sealed, WalletGroupId::new()).await.unwrap_err(), SealError::Corrupt);
        let other_version = associated_data(group, VERSION + 1);
        assert_eq!(seal.decrypt(&sealed, &other_version).unwrap_err(), SealError::Corrupt);
        for i in 0..sealed.ciphertext.len() {
            let mut edited = sealed.clone();
            edited.ciphertext[i] ^= 1;
            assert_eq!(seal.open(&edited, group).await.unwrap_err(), SealError::Corrupt);
        }
        let truncated = SealedSecret { nonce: vec![0; 3], ..sealed.clone() };
        assert_eq!(seal.open(&truncated, group).await.unwrap_err(), SealError::Corrupt);
        let future = SealedSecret { version: 9, ..sealed };
        assert_eq!(seal.open(&future, group).await.unwrap_err(), SealError::UnknownVersion(9));
    }

    #[test]
    fn an_edited_row_can_neither_weaken_the_derivation_nor_exhaust_memory() {
        let (_, keyring) = cheap();
        for params in [
            KdfParams { memory_kib: 8, ..KdfParams::FLOOR },
            KdfParams { iterations: 0, ..KdfParams::FLOOR },
            KdfParams { memory_kib: u32::MAX, ..KdfParams::FLOOR },
        ] {
            let edited = Keyring { params, ..keyring.clone() };
            assert_eq!(LocalSeal::unlock(KEY, &edited).unwrap_err(), SealError::BadParameters);
        }
    }

    #[test]
    fn debug_output_shows_no_key_material() {
        let (seal, keyring) = cheap();
        assert_eq!(format!("{seal:?}"), "LocalSeal(..)");
        assert!(!format!("{keyring:?}").contains("salt"));
    }
}
