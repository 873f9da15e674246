//! From typed values to the contract's messages, and an audit entry back from one, for checks outside this process.

use proto::signer::v1 as pb;

use crate::audit::{AuditEntry, Report};
use crate::group::{DerivedAddress, WalletGroup};
use crate::signing::{SignedTransaction, Simulation};
use crate::wallet::OperationWallet;

pub(super) fn signed(signed: SignedTransaction) -> pb::SignTransactionResponse {
    pb::SignTransactionResponse {
        raw_transaction: signed.raw,
        tx_hash: signed.tx_hash.to_string(),
        from_address: signed.from.to_string(),
        replayed: signed.replayed,
    }
}

pub(super) fn simulation(simulation: Simulation) -> pb::SimulatePolicyResponse {
    let rules = simulation.findings.into_iter().map(|finding| {
        let rule = finding.rule.to_string();
        match finding.outcome {
            Ok(why) => pb::RuleResult { rule, allowed: true, detail: why.to_owned() },
            Err(refusal) => {
                let detail = format!("{}: {}", refusal.reason, refusal.detail);
                pb::RuleResult { rule, allowed: false, detail }
            }
        }
    });
    pb::SimulatePolicyResponse { allowed: simulation.allowed, rules: rules.collect() }
}

pub(super) fn group(group: WalletGroup) -> pb::WalletGroup {
    pb::WalletGroup {
        id: group.id.to_string(),
        name: group.name,
        created_at: Some(proto::time::timestamp(group.created_at)),
        unsealed: group.unsealed,
        purpose: group.purpose.to_string(),
    }
}

pub(super) fn addresses(addresses: Vec<DerivedAddress>) -> pb::DeriveAddressesResponse {
    let addresses = addresses.into_iter().map(|derived| pb::DerivedAddress {
        index: derived.index,
        address: derived.address.to_string(),
        path: derived.path,
    });
    pb::DeriveAddressesResponse { addresses: addresses.collect() }
}

pub(super) fn wallet(wallet: &OperationWallet) -> pb::OperationWallet {
    pb::OperationWallet {
        chain: wallet.chain.to_string(),
        address: wallet.address.to_string(),
        wallet_group_id: wallet.key.map(|(group, _)| group.to_string()).unwrap_or_default(),
        derivation_index: wallet.key.map(|(_, index)| index).unwrap_or_default(),
    }
}

pub(super) fn audit_entry(entry: AuditEntry) -> pb::AuditEntry {
    pb::AuditEntry {
        sequence: entry.sequence,
        at: Some(proto::time::timestamp(entry.at)),
        caller: entry.caller,
        action: entry.action,
        decision: entry.decision,
        reason: entry.reason,
        detail: entry.detail,
        previous_hash: entry.previous_hash.to_string(),
        hash: entry.hash.to_string(),
    }
}

/// An entry that was listed, for [`crate::audit::verify`]; `None` when a field is missing or cannot be read.
pub fn read_audit_entry(entry: pb::AuditEntry) -> Option<AuditEntry> {
    Some(AuditEntry {
        sequence: entry.sequence,
        at: proto::time::datetime(&entry.at?).ok()?,
        caller: entry.caller,
        action: entry.action,
        decision: entry.decision,
        reason: entry.reason,
        detail: entry.detail,
        previous_hash: entry.previous_hash.parse().ok()?,
        hash: entry.hash.parse().ok()?,
    })
}

pub(super) fn report(report: Report) -> pb::VerifyAuditResponse {
    pb::VerifyAuditResponse {
        intact: report.problem.is_none() && report.next.is_none(),
        entries: report.entries,
        first_bad_sequence: report.problem.as_ref().map_or(0, |problem| problem.sequence()),
        problem: report.problem.map(|problem| problem.to_string()).unwrap_or_default(),
        took: prost_types::Duration::try_from(report.took).ok(),
        next_sequence: report.next.map_or(0, |next| next.sequence),
        next_hash: report.next.map(|next| next.hash.to_string()).unwrap_or_default(),
    }
}
