//! What confirmation proved, as it tells execution.

use alloy_primitives::U256;
use chrono::{DateTime, Utc};
use payment::{Cost, Finding, Inclusion, Verdict, VoidProof};
use prost_types::Timestamp;
use types::{RawAmount, TxHash};

use super::{FieldError, Mistakes, value};
use crate::execution::v1 as pb;
use crate::execution::v1::verdict::Finding as Wire;
use crate::time::{datetime, duration, timestamp};

/// Reads a verdict; one without a time was reached when it was received.
pub fn read_verdict(verdict: pb::Verdict, received_at: DateTime<Utc>) -> Result<Verdict, Vec<FieldError>> {
    let mut mistakes = Mistakes::default();
    let id = mistakes.take(value("verdict.id", &verdict.id));
    let job = mistakes.take(value("verdict.job_id", &verdict.job_id));
    let at = verdict.at.as_ref().map_or(Ok(received_at), datetime);
    let at = mistakes.take(at.map_err(|error| FieldError::new("verdict.at", error)));
    let finding = match verdict.finding {
        None => mistakes.take(Err(FieldError::missing("verdict.finding"))),
        Some(finding) => read_finding(&mut mistakes, finding),
    };
    let built = (|| Some(Verdict { id: id?, job: job?, at: at?, finding: finding? }))();
    mistakes.finish(built)
}

fn read_finding(mistakes: &mut Mistakes, finding: Wire) -> Option<Finding> {
    Some(match finding {
        Wire::Settled(it) => Finding::Settled(read_inclusion(
            mistakes,
            (&it.tx_hash, it.block_number, &it.block_hash),
            (&it.gas_used, &it.gas_price, &it.fee),
        )?),
        Wire::Reverted(it) => {
            let inclusion = read_inclusion(
                mistakes,
                (&it.tx_hash, it.block_number, &it.block_hash),
                (&it.gas_used, &it.gas_price, &it.fee),
            );
            let void = read_hashes(mistakes, &it.void_tx_hashes);
            let proof = read_proof(mistakes, &void, it.attestation, it.attested_at.as_ref());
            Finding::Reverted {
                inclusion: inclusion?,
                reason: it.reason,
                value_moved: it.value_moved,
                void,
                proof,
            }
        }
        Wire::Void(it) => {
            let void = read_hashes(mistakes, &it.tx_hashes);
            let proof = read_proof(mistakes, &void, it.attestation, it.attested_at.as_ref());
            let foreign = read_optional(mistakes, "foreign_tx_hash", &it.foreign_tx_hash)?;
            Finding::Void { void, foreign, reason: it.reason, proof }
        }
        Wire::Cancelled(it) => {
            let inclusion = read_inclusion(
                mistakes,
                (&it.tx_hash, it.block_number, &it.block_hash),
                (&it.gas_used, &it.gas_price, &it.fee),
            );
            let void = read_hashes(mistakes, &it.void_tx_hashes);
            let proof = read_proof(mistakes, &void, it.attestation, it.attested_at.as_ref());
            Finding::Cancelled { inclusion: inclusion?, void, proof }
        }
        Wire::Stuck(it) => {
            let newest = mistakes.take(value("tx_hash", &it.tx_hash))?;
            let waited = it.waited.unwrap_or_default();
            let waited = chrono::TimeDelta::new(waited.seconds, u32::try_from(waited.nanos).unwrap_or(0));
            Finding::Stuck { newest, waited: waited.unwrap_or_default() }
        }
        Wire::Reopened(it) => {
            let tx = mistakes.take(value("tx_hash", &it.tx_hash))?;
            Finding::Reopened { tx, block_hash: read_optional(mistakes, "block_hash", &it.block_hash)? }
        }
        Wire::Contradicted(it) => {
            let tx = read_optional(mistakes, "tx_hash", &it.tx_hash)?;
            Finding::Contradicted { tx, reason: it.reason }
        }
    })
}

fn read_inclusion(
    mistakes: &mut Mistakes,
    (hash, block_number, block_hash): (&str, u64, &str),
    (gas_used, gas_price, fee): (&str, &str, &str),
) -> Option<Inclusion> {
    let tx = mistakes.take(value("tx_hash", hash));
    let block_hash = read_optional(mistakes, "block_hash", block_hash);
    let large = |field| FieldError::new(field, "is too large");
    let units = value::<RawAmount>("gas_used", gas_used);
    let units = mistakes.take(units.and_then(|it| it.to_u64().ok_or_else(|| large("gas_used"))));
    let unit_price = value::<RawAmount>("gas_price", gas_price);
    let unit_price = mistakes.take(unit_price.and_then(|it| it.to_u128().ok_or_else(|| large("gas_price"))));
    let (units, unit_price) = (units?, unit_price?);
    let fee = match fee {
        // An older release leaves it out: 64 and 128 bits multiply into 192.
        "" => RawAmount::from_u256(U256::from(units) * U256::from(unit_price)),
        text => mistakes.take(value("fee", text))?,
    };
    let cost = Cost { units, unit_price, fee };
    Some(Inclusion { tx: tx?, block_number, block_hash: block_hash?, cost })
}

fn read_hashes(mistakes: &mut Mistakes, hashes: &[String]) -> Vec<TxHash> {
    hashes.iter().filter_map(|hash| mistakes.take(value("tx_hashes", hash))).collect()
}

/// The outer `None`: it cannot be read.
fn read_optional(mistakes: &mut Mistakes, field: &str, text: &str) -> Option<Option<TxHash>> {
    if text.is_empty() { Some(None) } else { mistakes.take(value(field, text)).map(Some) }
}

fn read_proof(
    mistakes: &mut Mistakes,
    void: &[TxHash],
    signature: Vec<u8>,
    attested_at: Option<&Timestamp>,
) -> Option<VoidProof> {
    if signature.is_empty() {
        return None;
    }
    let attested_at = attested_at.and_then(|at| datetime(at).ok());
    let attested_at = attested_at.ok_or_else(|| FieldError::new("attested_at", "must be a time"));
    Some(VoidProof { tx_hashes: void.to_vec(), signature, attested_at: mistakes.take(attested_at)? })
}

pub fn write_verdict(verdict: &Verdict) -> pb::Verdict {
    pb::Verdict {
        id: verdict.id.to_string(),
        job_id: verdict.job.to_string(),
        at: Some(timestamp(verdict.at)),
        finding: Some(write_finding(&verdict.finding)),
    }
}

fn write_finding(finding: &Finding) -> Wire {
    match finding {
        Finding::Settled(inclusion) => {
            let (tx_hash, block_number, block_hash) = write_place(inclusion);
            let (gas_used, gas_price, fee) = write_cost(&inclusion.cost);
            Wire::Settled(pb::Settled { tx_hash, block_number, block_hash, gas_used, gas_price, fee })
        }
        Finding::Reverted { inclusion, reason, value_moved, void, proof } => {
            let (tx_hash, block_number, block_hash) = write_place(inclusion);
            let (gas_used, gas_price, fee) = write_cost(&inclusion.cost);
            let (attestation, attested_at) = write_proof(proof.as_ref());
            Wire::Reverted(pb::Reverted {
                tx_hash,
                block_number,
                block_hash,
                gas_used,
                gas_price,
                fee,
                reason: reason.clone(),
                value_moved: *value_moved,
                attestation,
                attested_at,
                void_tx_hashes: texts(void),
            })
        }
        Finding::Void { void, foreign, reason, proof } => {
            let (attestation, attested_at) = write_proof(proof.as_ref());
            Wire::Void(pb::VoidProof {
                tx_hashes: texts(void),
                reason: reason.clone(),
                attestation,
                foreign_tx_hash: optional_text(*foreign),
                attested_at,
            })
        }
        Finding::Cancelled { inclusion, void, proof } => {
            let (tx_hash, block_number, block_hash) = write_place(inclusion);
            let (gas_used, gas_price, fee) = write_cost(&inclusion.cost);
            let (attestation, attested_at) = write_proof(proof.as_ref());
            Wire::Cancelled(pb::Cancelled {
                tx_hash,
                block_number,
                block_hash,
                gas_used,
                gas_price,
                fee,
                attestation,
                attested_at,
                void_tx_hashes: texts(void),
            })
        }
        Finding::Stuck { newest, waited } => {
            Wire::Stuck(pb::Stuck { tx_hash: newest.to_string(), waited: Some(duration(*waited)) })
        }
        Finding::Reopened { tx, block_hash } => {
            Wire::Reopened(pb::Reopened { tx_hash: tx.to_string(), block_hash: optional_text(*block_hash) })
        }
        Finding::Contradicted { tx, reason } => {
            Wire::Contradicted(pb::Contradicted { tx_hash: optional_text(*tx), reason: reason.clone() })
        }
    }
}

fn write_place(inclusion: &Inclusion) -> (String, u64, String) {
    (inclusion.tx.to_string(), inclusion.block_number, optional_text(inclusion.block_hash))
}

fn write_cost(cost: &Cost) -> (String, String, String) {
    (cost.units.to_string(), cost.unit_price.to_string(), cost.fee.to_string())
}

fn write_proof(proof: Option<&VoidProof>) -> (Vec<u8>, Option<Timestamp>) {
    proof.map(|proof| (proof.signature.clone(), Some(timestamp(proof.attested_at)))).unwrap_or_default()
}

fn texts(hashes: &[TxHash]) -> Vec<String> {
    hashes.iter().map(ToString::to_string).collect()
}

fn optional_text(hash: Option<TxHash>) -> String {
    hash.map(|hash| hash.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use types::JobId;
    use uuid::Uuid;

    use super::*;

    fn hash(byte: u8) -> TxHash {
        TxHash::from([byte; 32])
    }

    fn at() -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000, 5).unwrap()
    }

    fn inclusion() -> Inclusion {
        let cost = Cost { units: 21_000, unit_price: 7, fee: RawAmount::from(147_001_u64) };
        Inclusion { tx: hash(1), block_number: 9, block_hash: Some(hash(2)), cost }
    }

    fn findings() -> Vec<Finding> {
        let (void, reason) = (vec![hash(1), hash(3)], "why".to_owned());
        let proof = Some(VoidProof { tx_hashes: void.clone(), signature: vec![4; 64], attested_at: at() });
        let reverted = |value_moved, void: Vec<TxHash>, proof| Finding::Reverted {
            inclusion: inclusion(),
            reason: "why".to_owned(),
            value_moved,
            void,
            proof,
        };
        vec![
            Finding::Settled(inclusion()),
            reverted(false, void.clone(), proof.clone()),
            reverted(true, Vec::new(), None),
            Finding::Void {
                void: void.clone(),
                foreign: Some(hash(8)),
                reason: reason.clone(),
                proof: proof.clone(),
            },
            Finding::Void { void: void.clone(), foreign: None, reason: reason.clone(), proof: None },
            Finding::Cancelled { inclusion: inclusion(), void, proof },
            Finding::Stuck { newest: hash(1), waited: TimeDelta::seconds(90) },
            Finding::Reopened { tx: hash(1), block_hash: Some(hash(2)) },
            Finding::Contradicted { tx: None, reason },
        ]
    }

    #[test]
    fn every_verdict_survives_the_conversion() {
        for finding in findings() {
            let verdict = Verdict { id: Uuid::now_v7(), job: JobId::new(), at: at(), finding };
            assert_eq!(read_verdict(write_verdict(&verdict), Utc::now()), Ok(verdict));
        }
    }

    #[test]
    fn a_release_that_names_no_fee_means_gas_times_price() {
        let verdict = Verdict {
            id: Uuid::now_v7(),
            job: JobId::new(),
            at: at(),
            finding: Finding::Settled(inclusion()),
        };
        let mut wire = write_verdict(&verdict);
        let Some(Wire::Settled(settled)) = &mut wire.finding else { panic!("settled") };
        (settled.fee, settled.block_hash) = (String::new(), String::new());
        wire.at = None;
        let read = read_verdict(wire, at()).unwrap();
        let Finding::Settled(found) = read.finding else { panic!("settled") };
        assert_eq!((found.cost.fee, found.block_hash), (RawAmount::from(147_000_u64), None));
        assert_eq!(read.at, at(), "reached when it was received");
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let wire = pb::Verdict {
            finding: Some(Wire::Void(pb::VoidProof {
                tx_hashes: vec!["x".into()],
                attestation: vec![1],
                ..pb::VoidProof::default()
            })),
            ..pb::Verdict::default()
        };
        let errors = read_verdict(wire, at()).unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["verdict.id", "verdict.job_id", "tx_hashes", "attested_at"]);
        let nothing = read_verdict(pb::Verdict::default(), at()).unwrap_err();
        assert!(nothing.contains(&FieldError::missing("verdict.finding")));
    }
}
