//! Findings as the messages that carry them, and the signature under those that allow another attempt.
//!
//! Owns the attestation key. Signs one kind of message only: that transactions of a job can never pay
//! ([`types::void_message`]). Never signs for a transaction that moved something or whose effect is not known, nor on
//! anybody's word: what closes each of them was read off its own signed bytes.

use std::fmt;

use chrono::{DateTime, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use prost_types::Timestamp;
use proto::execution::v1 as execution;
use proto::intent::v1 as intent;
use proto::time::{duration, timestamp};
use types::{TxHash, void_message};
use uuid::Uuid;

use super::domain::{Finding, Watch};

/// The key with which void proofs are signed.
#[derive(Clone)]
pub struct AttestationKey(SigningKey);

impl AttestationKey {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// The signature, and when it was given; none under what rests on somebody's word.
    fn attest(&self, watch: &Watch, hashes: &[TxHash], at: DateTime<Utc>) -> (Vec<u8>, Option<Timestamp>) {
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

/// The verdict that carries a finding on a watch.
pub fn message(
    id: Uuid,
    watch: &Watch,
    finding: &Finding,
    at: DateTime<Utc>,
    key: &AttestationKey,
) -> execution::Verdict {
    use execution::verdict::Finding as Wire;
    let finding = match finding {
        Finding::Settled { tx, block, cost } => Wire::Settled(execution::Settled {
            tx_hash: tx.to_string(),
            block_number: block.number,
            block_hash: block.hash.to_string(),
            gas_used: cost.units.to_string(),
            gas_price: cost.unit_price.to_string(),
            fee: cost.fee.to_string(),
        }),
        Finding::Reverted { tx, block, cost, reason, value_moved } => {
            let void = if *value_moved { Vec::new() } else { watch.ruled_out_by(tx) };
            let (attestation, attested_at) =
                if *value_moved { (Vec::new(), None) } else { key.attest(watch, &void, at) };
            Wire::Reverted(execution::Reverted {
                tx_hash: tx.to_string(),
                block_number: block.number,
                gas_used: cost.units.to_string(),
                gas_price: cost.unit_price.to_string(),
                fee: cost.fee.to_string(),
                reason: reason.clone(),
                value_moved: *value_moved,
                block_hash: block.hash.to_string(),
                attestation,
                attested_at,
                void_tx_hashes: void.iter().map(ToString::to_string).collect(),
            })
        }
        Finding::Void { foreign, reason } => {
            let hashes: Vec<TxHash> = watch.present().map(|tx| tx.hash).collect();
            let (attestation, attested_at) = key.attest(watch, &hashes, at);
            Wire::Void(execution::VoidProof {
                tx_hashes: hashes.iter().map(ToString::to_string).collect(),
                reason: reason.clone(),
                attestation,
                foreign_tx_hash: foreign.map_or_else(String::new, |hash| hash.to_string()),
                attested_at,
            })
        }
        Finding::Cancelled { tx, block, cost } => {
            let void = watch.ruled_out_by(tx);
            let (attestation, attested_at) = key.attest(watch, &void, at);
            Wire::Cancelled(execution::Cancelled {
                tx_hash: tx.to_string(),
                block_number: block.number,
                gas_used: cost.units.to_string(),
                gas_price: cost.unit_price.to_string(),
                fee: cost.fee.to_string(),
                block_hash: block.hash.to_string(),
                attestation,
                attested_at,
                void_tx_hashes: void.iter().map(ToString::to_string).collect(),
            })
        }
        Finding::Stuck { newest, waited } => {
            Wire::Stuck(execution::Stuck { tx_hash: newest.to_string(), waited: Some(duration(*waited)) })
        }
        Finding::Reopened { tx, block } => Wire::Reopened(execution::Reopened {
            tx_hash: tx.to_string(),
            block_hash: block.hash.to_string(),
        }),
        Finding::Contradicted { tx, reason } => Wire::Contradicted(execution::Contradicted {
            tx_hash: tx.map_or_else(String::new, |hash| hash.to_string()),
            reason: reason.clone(),
        }),
    };
    execution::Verdict {
        id: id.to_string(),
        job_id: watch.job.to_string(),
        at: Some(timestamp(at)),
        finding: Some(finding),
    }
}

/// What intent is told: only that a withdrawal settled.
pub fn progress(
    watch: &Watch,
    finding: &Finding,
    at: DateTime<Utc>,
) -> Option<intent::RecordProgressRequest> {
    let withdrawal = watch.withdrawal?;
    let Finding::Settled { tx, block, .. } = finding else { return None };
    let completed = intent::Completed { tx_hash: tx.to_string(), block_number: block.number };
    Some(intent::RecordProgressRequest {
        withdrawal_id: withdrawal.to_string(),
        at: Some(timestamp(at)),
        progress: Some(intent::record_progress_request::Progress::Completed(completed)),
    })
}
