//! Void attestations: the confirmation service's signed word that transactions of a job can never land.
//! The bytes they sign are [`types::payment::void_message`].

use std::collections::BTreeSet;

use ed25519_dalek::{Signature, VerifyingKey};
use payment::VoidProof;
use types::{JobId, TxHash, void_message};

/// No job gets more transactions at one nonce.
const MAX_HASHES: usize = 256;

/// Confirmation's word about a job as it arrived: nothing in it is believed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidAttestation {
    pub job: JobId,
    pub proof: VoidProof,
}

/// An attestation whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedVoid {
    job: JobId,
    tx_hashes: BTreeSet<TxHash>,
}

/// Why an attestation is not believed. The name of the variant is the stable reason in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "void_attestation.", const_into_str)]
pub enum AttestationError {
    #[error("the void attestation's signature is not by a known confirmation key")]
    Signature,
    #[error("the void attestation names no transaction")]
    Empty,
    #[error("the void attestation names too many transactions")]
    TooMany,
}

impl VoidAttestation {
    /// The transactions it names, in ascending order without repeats: so they are signed, and so the log keeps them.
    pub fn tx_hashes(&self) -> BTreeSet<TxHash> {
        self.proof.tx_hashes.iter().copied().collect()
    }

    /// Checks the signature against confirmation's keys.
    pub fn verify(&self, keys: &[VerifyingKey]) -> Result<VerifiedVoid, AttestationError> {
        let tx_hashes = self.tx_hashes();
        if tx_hashes.is_empty() {
            return Err(AttestationError::Empty);
        }
        if tx_hashes.len() > MAX_HASHES {
            return Err(AttestationError::TooMany);
        }
        let VoidProof { tx_hashes: listed, signature, attested_at } = &self.proof;
        let signature = Signature::from_slice(signature).map_err(|_| AttestationError::Signature)?;
        let message = void_message(self.job, listed, attested_at.timestamp());
        if !keys.iter().any(|key| key.verify_strict(&message, &signature).is_ok()) {
            return Err(AttestationError::Signature);
        }
        Ok(VerifiedVoid { job: self.job, tx_hashes })
    }
}

impl VerifiedVoid {
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
    use chrono::DateTime;
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    #[test]
    fn only_confirmations_signature_over_exactly_these_hashes_is_believed() {
        let confirmation = SigningKey::from_bytes(&[7; 32]);
        let stranger = SigningKey::from_bytes(&[8; 32]);
        let keys = [confirmation.verifying_key()];
        let job = JobId::new();
        let [first, second, third] = [1, 2, 3].map(|byte| TxHash::from([byte; 32]));
        let attested_at = DateTime::from_timestamp(1_800_000_000, 0).expect("time");
        let sign = |key: &SigningKey| {
            let message = void_message(job, &[first, second], attested_at.timestamp());
            key.sign(&message).to_bytes().to_vec()
        };
        let good = VoidProof { tx_hashes: vec![second, first], attested_at, signature: sign(&confirmation) };
        let verify = |proof: VoidProof| VoidAttestation { job, proof }.verify(&keys);
        let believed = verify(good.clone()).expect("believed");
        assert!(believed.covers(&first) && !believed.covers(&third));

        let refused = [
            VoidProof { signature: sign(&stranger), ..good.clone() },
            VoidProof { tx_hashes: vec![first], ..good.clone() },
            VoidProof { attested_at: attested_at + chrono::TimeDelta::seconds(1), ..good.clone() },
            VoidProof { signature: vec![0; 12], ..good.clone() },
        ];
        for proof in refused {
            assert_eq!(verify(proof), Err(AttestationError::Signature));
        }
        let other_job = VoidAttestation { job: JobId::new(), proof: good.clone() };
        assert_eq!(other_job.verify(&keys), Err(AttestationError::Signature));
        let unknown = VoidAttestation { job, proof: good.clone() }.verify(&[]);
        assert_eq!(unknown, Err(AttestationError::Signature), "without a key nothing is believed");
        assert_eq!(verify(VoidProof { tx_hashes: vec![], ..good }), Err(AttestationError::Empty));
    }
}
