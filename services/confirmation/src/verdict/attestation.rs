//! The key with which void proofs are signed.
//!
//! Signs one kind of message only: that transactions of a job can never pay ([`types::void_message`]). It never signs for a
//! transaction that moved something or whose effect is not known, nor for one that is known only from what the caller said:
//! what closes each of them was read from its own signed bytes.

use std::fmt;

use chrono::{DateTime, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use payment::{Finding, VoidProof};
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

    /// Adds the proof to a finding that allows another attempt. A transaction that is known only from what the caller said
    /// gets none.
    pub(super) fn attest(&self, watch: &Watch, finding: Finding, at: DateTime<Utc>) -> Finding {
        let prove = |void: &[TxHash]| {
            watch.is_proven(void).then(|| VoidProof {
                tx_hashes: void.to_vec(),
                signature: self.0.sign(&void_message(watch.job, void, at.timestamp())).to_bytes().to_vec(),
                attested_at: at,
            })
        };
        match finding {
            Finding::Reverted { inclusion, reason, value_moved: false, void, .. } => {
                let proof = prove(&void);
                Finding::Reverted { inclusion, reason, value_moved: false, void, proof }
            }
            Finding::Void { void, foreign, reason, .. } => {
                let proof = prove(&void);
                Finding::Void { void, foreign, reason, proof }
            }
            Finding::Cancelled { inclusion, void, .. } => {
                let proof = prove(&void);
                Finding::Cancelled { inclusion, void, proof }
            }
            Finding::Settled(_)
            | Finding::Reverted { value_moved: true, .. }
            | Finding::Stuck { .. }
            | Finding::Reopened { .. }
            | Finding::Contradicted { .. } => finding,
        }
    }
}

impl fmt::Debug for AttestationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttestationKey(public {})", hex::encode(self.public()))
    }
}
