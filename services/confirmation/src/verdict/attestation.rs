//! The key with which void proofs are signed.
//!
//! Signs one kind of message only: that transactions of a job can never pay ([`types::void_message`]). It never signs for a
//! transaction that moved something or whose effect is not known, nor for one that is known only from what the caller said:
//! what closes each of them was read from its own signed bytes.

use std::fmt;

use chrono::{DateTime, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use payment::{Finding, VoidProof};
use types::void_message;

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

    /// Adds the proof to a finding that allows another attempt. Transactions that are known only from what the caller said
    /// get none.
    pub(super) fn attest(&self, watch: &Watch, finding: &mut Finding, at: DateTime<Utc>) {
        let (void, proof) = match finding {
            Finding::Reverted { value_moved: false, void, proof, .. }
            | Finding::Void { void, proof, .. }
            | Finding::Cancelled { void, proof, .. } => (void, proof),
            Finding::Settled(_)
            | Finding::Reverted { value_moved: true, .. }
            | Finding::Stuck { .. }
            | Finding::Reopened { .. }
            | Finding::Contradicted { .. } => return,
        };
        *proof = watch.is_proven(void).then(|| VoidProof {
            tx_hashes: void.clone(),
            signature: self.0.sign(&void_message(watch.job, void, at.timestamp())).to_bytes().to_vec(),
            attested_at: at,
        });
    }
}

impl fmt::Debug for AttestationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttestationKey(public {})", hex::encode(self.public()))
    }
}
