//! The key with which void proofs are signed.
//!
//! Signs one kind of message only: that transactions of a job can never pay ([`types::void_message`]). It never signs for a
//! transaction that moved something or whose effect is not known, nor for one that is known only from what the caller said:
//! what closes each of them was read from its own signed bytes.

use std::fmt;

use chrono::{DateTime, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use prost_types::Timestamp;
use proto::time::timestamp;
use types::{TxHash, void_message};

use crate::watch::Watch;

#[derive(Clone)]
pub struct AttestationKey(SigningKey);

impl AttestationKey {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// The signature and its time; none if one of the transactions is known only from what the caller said.
    pub(super) fn attest(
        &self,
        watch: &Watch,
        hashes: &[TxHash],
        at: DateTime<Utc>,
    ) -> (Vec<u8>, Option<Timestamp>) {
        if !watch.is_proven(hashes) {
            return (Vec::new(), None);
        }
        let signature = self.0.sign(&void_message(watch.job, hashes, at.timestamp()));
        (signature.to_bytes().to_vec(), Some(timestamp(at)))
    }
}

impl fmt::Debug for AttestationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttestationKey(public {})", hex::encode(self.public()))
    }
}
