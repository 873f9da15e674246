//! Approvers' signatures. Checking them is pure computation and happens outside the ledger; whether they have
//! expired is judged inside it, by the database's clock.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ed25519_dalek::Signature;
use types::{PaymentDigest, approval_message};

use super::{Policy, Refusal, Rule};

/// More approvals than any policy needs; bounds the work a hostile request causes.
const MAX_PROOFS: usize = 32;

/// One approver's consent as it arrived: nothing in it is believed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalProof {
    /// Name of the approver.
    pub approver: String,
    /// Their signature.
    pub signature: Vec<u8>,
    /// Until when it may be used.
    pub expires_at: DateTime<Utc>,
}

/// A consent whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedApproval {
    /// Name of the approver.
    pub approver: String,
    /// Until when it may be used.
    pub expires_at: DateTime<Utc>,
}

/// Checked approvals, and how many are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quorum {
    /// Needed.
    pub required: u32,
    /// Of distinct persons, none of them the requester.
    pub approvals: Vec<VerifiedApproval>,
    /// The longest an approval may live.
    pub max_validity: Duration,
}

impl Quorum {
    /// Checks every signature, that the approvers are distinct persons, and that none of them asked for the payment.
    pub fn verify(
        policy: &Policy,
        digest: PaymentDigest,
        requested_by: &str,
        required: u32,
        proofs: &[ApprovalProof],
    ) -> Result<Self, Refusal> {
        if proofs.len() > MAX_PROOFS {
            return Err(refuse("approvals.too_many", format!("more than {MAX_PROOFS} approvals")));
        }
        let mut persons = HashSet::new();
        let mut approvals = Vec::with_capacity(proofs.len());
        for proof in proofs {
            let name = proof.approver.as_str();
            let Some(approver) = policy.approvers.get(name) else {
                return Err(refuse("approvals.unknown_approver", format!("{name:?} is no approver here")));
            };
            if requested_by == name || requested_by == approver.person {
                return Err(refuse("approvals.requester", format!("{name:?} asked for this payment")));
            }
            if !persons.insert(approver.person.as_str()) {
                let detail = format!("{:?} approved more than once", approver.person);
                return Err(refuse("approvals.same_person", detail));
            }
            let message = approval_message(digest, name, proof.expires_at.timestamp());
            let valid = Signature::from_slice(&proof.signature)
                .is_ok_and(|signature| approver.key.verify_strict(&message, &signature).is_ok());
            if !valid {
                let detail = format!("the signature of {name:?} is not for exactly this payment");
                return Err(refuse("approvals.signature", detail));
            }
            approvals.push(VerifiedApproval { approver: name.to_owned(), expires_at: proof.expires_at });
        }
        Ok(Self { required, approvals, max_validity: policy.max_approval_validity })
    }

    /// Whether enough of them held at `judged_at`: now for a payment that was never signed, the instant of its first
    /// signature afterwards, so that a fee bump does not depend on approvers still being awake.
    pub fn judge(&self, judged_at: DateTime<Utc>) -> Result<(), Refusal> {
        let too_long = self.approvals.iter().find(|approval| {
            (approval.expires_at - judged_at).to_std().is_ok_and(|left| left > self.max_validity)
        });
        if let Some(approval) = too_long {
            let detail = format!("the approval of {:?} is valid for too long", approval.approver);
            return Err(refuse("approvals.validity", detail));
        }
        let required = usize::try_from(self.required).unwrap_or(usize::MAX);
        let holding = self.approvals.iter().filter(|approval| approval.expires_at > judged_at).count();
        if holding >= required {
            return Ok(());
        }
        let detail = format!("{holding} of {required} approvals hold");
        let reason = if self.approvals.len() >= required { "approvals.expired" } else { "approvals.too_few" };
        Err(refuse(reason, detail))
    }
}

fn refuse(reason: &'static str, detail: String) -> Refusal {
    Refusal::of_field(Rule::Approvals, reason, "authorization.withdrawal.approvals", detail)
}
