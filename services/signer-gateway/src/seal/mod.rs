//! Sealing of secrets at rest. Owns the [`KeySeal`] edge (a key management service can take the local
//! implementation's place) and the shape of a sealed secret. Never stores anything, never logs a secret.
//!
//! Invariant: a sealed secret opens only under the context (group, version) it was sealed for, so that rows
//! cannot be swapped between groups by whoever writes the database.

mod error;
mod local;

use futures::future::BoxFuture;
use types::id::WalletGroupId;
use zeroize::Zeroizing;

pub use error::SealError;
pub use local::{KdfParams, Keyring, LocalSeal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealContext {
    pub group: WalletGroupId,
    pub version: u16,
}

impl SealContext {
    /// The layout written today.
    pub const CURRENT_VERSION: u16 = 1;

    pub fn current(group: WalletGroupId) -> Self {
        Self { group, version: Self::CURRENT_VERSION }
    }

    /// Associated data: unambiguous, because each part has a fixed length.
    pub(crate) fn associated_data(&self) -> Vec<u8> {
        let mut aad = b"bursar/sealed-seed/v1".to_vec();
        aad.extend_from_slice(self.group.as_uuid().as_bytes());
        aad.extend_from_slice(&self.version.to_be_bytes());
        aad
    }
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

/// Seals and opens secrets. Implementations may call out (a KMS), so both directions are asynchronous.
pub trait KeySeal: Send + Sync + std::fmt::Debug {
    fn seal<'a>(
        &'a self,
        secret: &'a [u8],
        context: SealContext,
    ) -> BoxFuture<'a, Result<SealedSecret, SealError>>;

    fn open<'a>(
        &'a self,
        sealed: &'a SealedSecret,
        context: SealContext,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SealError>>;
}
