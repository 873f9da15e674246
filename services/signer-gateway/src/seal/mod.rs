//! Sealing of secrets at rest. Owns the [`KeySeal`] trait, the shape of a sealed secret and the list of backends. Never logs a
//! secret.
//!
//! A backend is one file: its settings, how it is opened, its [`KeySeal`]; and one variant of [`SealBackend`]. Each backend writes
//! a version of its own, so that it refuses what another one sealed.
//!
//! Invariant: a sealed secret opens only for the group and version it was sealed for, so that whoever writes the database cannot
//! swap rows between groups.

mod error;
mod local;
mod repo;

use std::sync::Arc;

use futures::future::BoxFuture;
use service::config::Reader;
use sqlx::PgPool;
use types::id::WalletGroupId;
use zeroize::Zeroizing;

pub use error::{SealError, UnsealError};
pub use local::KdfParams;

/// The backends, with their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealBackend {
    Local(KdfParams),
}

impl SealBackend {
    /// Reads `seal.backend` and the settings of that backend.
    pub(crate) fn read(section: &Reader) -> Option<Self> {
        match section.or("backend", "local".to_owned()).as_str() {
            "local" => Some(Self::Local(KdfParams::read(section))),
            other => {
                section.wrong("backend", format!("`{other}` is not a seal backend; there is `local`"));
                None
            }
        }
    }

    /// Opens the seal with the operator's unseal key.
    pub(crate) async fn open(
        self,
        pool: &PgPool,
        unseal_key: Zeroizing<String>,
    ) -> Result<Arc<dyn KeySeal>, UnsealError> {
        Ok(match self {
            Self::Local(kdf) => Arc::new(local::open(pool, kdf, unseal_key).await?),
        })
    }
}

/// What a backend binds a ciphertext to. The bytes are unambiguous, because each part has a fixed length.
fn associated_data(group: WalletGroupId, version: u16) -> Vec<u8> {
    let mut aad = b"bursar/sealed-seed/v1".to_vec();
    aad.extend_from_slice(group.as_uuid().as_bytes());
    aad.extend_from_slice(&version.to_be_bytes());
    aad
}

/// A secret as it is stored: useless without the seal that made it.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub version: u16,
    pub nonce: Vec<u8>,
    pub ciphertext: Vec<u8>,
}

impl std::fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedSecret").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Seals and opens secrets. Backends may call out (a key management service), so both directions are asynchronous.
pub trait KeySeal: Send + Sync + std::fmt::Debug {
    fn seal<'a>(
        &'a self,
        secret: &'a [u8],
        group: WalletGroupId,
    ) -> BoxFuture<'a, Result<SealedSecret, SealError>>;

    /// Opens what [`KeySeal::seal`] made for the same group.
    fn open<'a>(
        &'a self,
        sealed: &'a SealedSecret,
        group: WalletGroupId,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SealError>>;
}
