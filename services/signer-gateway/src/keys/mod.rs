//! Hierarchical keys. Owns BIP-39 phrases, BIP-44 derivation and secp256k1 signatures. Never stores a key, never
//! signs anything but a 32-byte digest that a builder of this crate made.
//!
//! Invariant: private material lives in memory that is wiped when dropped; nothing here prints it.

mod hd;
mod phrase;
mod ring;

pub use hd::{BranchKey, LeafKey, RecoverableSignature, Scheme, Seed};
pub use phrase::{PhraseError, seed_from_phrase, seed_from_random};
pub use ring::{Epoch, KeyRing, WalletKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The seed or an intermediate key lies outside the curve's order (probability about 2^-127).
    #[error("this derivation index yields no valid key")]
    OutOfRange,
    /// Indices from 2^31 on are hardened in BIP-32 and have no place in these paths.
    #[error("derivation index must be below 2147483648")]
    IndexTooLarge,
    /// The group's seed is not in memory: the gateway is sealed, or the group was made by another replica.
    #[error("the wallet group is not unsealed")]
    Sealed,
}
