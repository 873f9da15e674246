//! Verdicts as confirmation would send them.

use chrono::{TimeDelta, Utc};
use payment::{Cost, Finding, Inclusion, Verdict, VoidProof};
use types::{JobId, RawAmount, TxHash};
use uuid::Uuid;

pub(crate) fn inclusion(tx: TxHash) -> Inclusion {
    let cost = Cost { units: 21_000, unit_price: 1_000_000_000, fee: RawAmount::from(21_000_000_000_000u64) };
    Inclusion { tx, block_number: 1, block_hash: None, cost }
}

pub(crate) fn proof(tx_hashes: Vec<TxHash>) -> VoidProof {
    VoidProof { tx_hashes, signature: vec![0xab; 64], attested_at: Utc::now() }
}

pub(crate) fn verdict(job: JobId, finding: Finding) -> Verdict {
    Verdict { id: Uuid::now_v7(), job, at: Utc::now(), finding }
}

pub(crate) fn settled(job: JobId, tx: TxHash) -> Verdict {
    verdict(job, Finding::Settled(inclusion(tx)))
}

pub(crate) fn reverted(job: JobId, tx: TxHash, value_moved: bool) -> Verdict {
    verdict(
        job,
        Finding::Reverted {
            inclusion: inclusion(tx),
            reason: "no transfer log".to_owned(),
            value_moved,
            void: vec![tx],
            proof: (!value_moved).then(|| proof(vec![tx])),
        },
    )
}

/// A foreign transaction is final at the nonce of these, with the proof that lets the job go on.
pub(crate) fn void(job: JobId, hashes: Vec<TxHash>) -> Verdict {
    let reason = "another transaction is final at the nonce".to_owned();
    let foreign = Some([0xee; 32].into());
    verdict(job, Finding::Void { void: hashes.clone(), foreign, reason, proof: Some(proof(hashes)) })
}

pub(crate) fn cancelled(job: JobId, tx: TxHash, proof: Option<VoidProof>) -> Verdict {
    let void = proof.as_ref().map(|proof| proof.tx_hashes.clone()).unwrap_or_default();
    verdict(job, Finding::Cancelled { inclusion: inclusion(tx), void, proof })
}

pub(crate) fn stuck(job: JobId, newest: TxHash) -> Verdict {
    verdict(job, Finding::Stuck { newest, waited: TimeDelta::seconds(60) })
}

pub(crate) fn contradicted(job: JobId, tx: Option<TxHash>, reason: &str) -> Verdict {
    verdict(job, Finding::Contradicted { tx, reason: reason.to_owned() })
}
