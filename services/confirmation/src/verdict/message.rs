//! Findings as the messages that carry them.

use chrono::{DateTime, Utc};
use proto::execution::v1 as execution_pb;
use proto::intent::v1 as intent_pb;
use proto::time::{duration, timestamp};
use types::TxHash;
use uuid::Uuid;

use super::attestation::AttestationKey;
use crate::watch::{Finding, Watch};

pub(super) fn verdict(
    id: Uuid,
    watch: &Watch,
    finding: &Finding,
    at: DateTime<Utc>,
    key: &AttestationKey,
) -> execution_pb::Verdict {
    use execution_pb::verdict::Finding as PbFinding;
    let finding = match finding {
        Finding::Settled { tx, block, cost } => PbFinding::Settled(execution_pb::Settled {
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
            PbFinding::Reverted(execution_pb::Reverted {
                tx_hash: tx.to_string(),
                block_number: block.number,
                gas_used: cost.units.to_string(),
                gas_price: cost.unit_price.to_string(),
                fee: cost.fee.to_string(),
                reason: reason.clone(),
                value_moved: *value_moved,
                attestation,
                attested_at,
                void_tx_hashes: void.iter().map(ToString::to_string).collect(),
            })
        }
        Finding::Void { foreign, reason } => {
            let hashes: Vec<TxHash> = watch.present().map(|tx| tx.hash).collect();
            let (attestation, attested_at) = key.attest(watch, &hashes, at);
            PbFinding::Void(execution_pb::VoidProof {
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
            PbFinding::Cancelled(execution_pb::Cancelled {
                tx_hash: tx.to_string(),
                block_number: block.number,
                gas_used: cost.units.to_string(),
                gas_price: cost.unit_price.to_string(),
                attestation,
                attested_at,
                void_tx_hashes: void.iter().map(ToString::to_string).collect(),
            })
        }
        Finding::Stuck { newest, waited } => PbFinding::Stuck(execution_pb::Stuck {
            tx_hash: newest.to_string(),
            waited: Some(duration(*waited)),
        }),
        Finding::Reopened { tx, block } => PbFinding::Reopened(execution_pb::Reopened {
            tx_hash: tx.to_string(),
            block_hash: block.hash.to_string(),
        }),
        Finding::Contradicted { tx, reason } => PbFinding::Contradicted(execution_pb::Contradicted {
            tx_hash: tx.map_or_else(String::new, |hash| hash.to_string()),
            reason: reason.clone(),
        }),
    };
    execution_pb::Verdict {
        id: id.to_string(),
        job_id: watch.job.to_string(),
        at: Some(timestamp(at)),
        finding: Some(finding),
    }
}

/// The message to intent, which hears only that a withdrawal settled.
pub(super) fn progress(
    watch: &Watch,
    finding: &Finding,
    at: DateTime<Utc>,
) -> Option<intent_pb::RecordProgressRequest> {
    let withdrawal = watch.withdrawal?;
    let Finding::Settled { tx, block, .. } = finding else { return None };
    let completed = intent_pb::Completed { tx_hash: tx.to_string(), block_number: block.number };
    Some(intent_pb::RecordProgressRequest {
        withdrawal_id: withdrawal.to_string(),
        at: Some(timestamp(at)),
        progress: Some(intent_pb::record_progress_request::Progress::Completed(completed)),
    })
}
