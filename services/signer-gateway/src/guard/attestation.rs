//! Void attestations: the confirmation service's signed word that transactions of a job can never land.
//! The bytes they sign are [`types::payment::void_message`].

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use ed25519_dalek::{Signature, VerifyingKey};
use types::{JobId, TxHash, void_message};

/// More transactions than one job's nonce ever gets.
const MAX_HASHES: usize = 256;

/// An attestation as it arrived: nothing in it is believed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidAttestation {
    pub job: JobId,
    pub tx_hashes: BTreeSet<TxHash>,
    pub attested_at: DateTime<Utc>,
    pub signature: Vec<u8>,
}

/// An attestation whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidProof {
    job: JobId,
    tx_hashes: BTreeSet<TxHash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttestationError {
    #[error("the void attestation's signature is not by a known confirmation key")]
    Signature,
    #[error("the void attestation names no transaction")]
    Empty,
    #[error("the void attestation names too many transactions")]
    TooMany,
}

impl AttestationError {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Signature => "void_attestation.signature",
            Self::Empty => "void_attestation.empty",
            Self::TooMany => "void_attestation.too_many",
        }
    }
}

impl VoidAttestation {
    /// Checks the signature against confirmation's keys.
    pub fn verify(&self, keys: &[VerifyingKey]) -> Result<VoidProof, AttestationError> {
        if self.tx_hashes.is_empty() {
            return Err(AttestationError::Empty);
        }
        if self.tx_hashes.len() > MAX_HASHES {
            return Err(AttestationError::TooMany);
        }
        let signature = Signature::from_slice(&self.signature).map_err(|_| AttestationError::Signature)?;
        let hashes: Vec<TxHash> = self.tx_hashes.iter().copied().collect();
        let message = void_message(self.job, &hashes, self.attested_at.timestamp());
        if !keys.iter().any(|key| key.verify_strict(&message, &signature).is_ok()) {
            return Err(AttestationError::Signature);
        }
        Ok(VoidProof { job: self.job, tx_hashes: self.tx_hashes.clone() })
    }
}

impl VoidProof {
    pub(super) fn job(&self) -> JobId {
        self.job
    }

    pub(super) fn covers(&self, hash: &TxHash) -> bool {
        self.tx_hashes.contains(hash)
    }

    #[cfg(test)]
    pub(crate) fn believed(job: JobId, tx_hashes: BTreeSet<TxHash>) -> Self {
        Self { job, tx_hashes }
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    #[test]
    fn only_confirmations_signature_over_exactly_these_hashes_is_believed() {
        let confirmation = SigningKey::from_bytes(&[7; 32]);
        let stranger = SigningKey::from_bytes(&[8; 32]);
        let keys = [confirmation.verifying_key()];
        let job = JobId::new();
        let hashes = BTreeSet::from([TxHash([1; 32]), TxHash([2; 32])]);
        let attested_at = DateTime::from_timestamp(1_800_000_000, 0).expect("time");
        let sign = |key: &SigningKey| {
            let listed: Vec<TxHash> = hashes.iter().copied().collect();
            key.sign(&void_message(job, &listed, attested_at.timestamp())).to_bytes().to_vec()
        };
        let good =
            VoidAttestation { job, tx_hashes: hashes.clone(), attested_at, signature: sign(&confirmation) };
        let proof = good.verify(&keys).expect("believed");
        assert!(proof.covers(&TxHash([1; 32])) && !proof.covers(&TxHash([3; 32])));

        let refused = [
            VoidAttestation { signature: sign(&stranger), ..good.clone() },
            VoidAttestation { job: JobId::new(), ..good.clone() },
            VoidAttestation { tx_hashes: BTreeSet::from([TxHash([1; 32])]), ..good.clone() },
            VoidAttestation { attested_at: attested_at + chrono::TimeDelta::seconds(1), ..good.clone() },
            VoidAttestation { signature: vec![0; 12], ..good.clone() },
        ];
        for attestation in refused {
            assert_eq!(attestation.verify(&keys), Err(AttestationError::Signature));
        }
        assert_eq!(good.verify(&[]), Err(AttestationError::Signature), "without a key nothing is believed");
        let empty = VoidAttestation { tx_hashes: BTreeSet::new(), ..good };
        assert_eq!(empty.verify(&keys), Err(AttestationError::Empty));
    }
}
