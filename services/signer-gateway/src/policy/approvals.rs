//! Approvers' signatures. Checking them is pure computation and happens outside the ledger; whether they have
//! expired is judged inside it, by the database's clock.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use types::{PaymentDigest, approval_message};

use super::{Policy, Refusal, Rule, SignatureClaim, VerifiedSignatures};

/// More approvals than any policy needs; bounds the work a hostile request causes.
const MAX_PROOFS: usize = types::MOST_APPROVALS as usize;

/// One approver's consent as it arrived: nothing in it is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalProof {
    pub approver: String,
    pub signature: Vec<u8>,
    pub expires_at: DateTime<Utc>,
}

/// A consent whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedApproval {
    pub approver: String,
    pub expires_at: DateTime<Utc>,
}

/// Checked approvals, and how many are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quorum {
    pub required: u32,
    /// Of distinct persons, none of whom asked for it.
    pub approvals: Vec<VerifiedApproval>,
    pub max_validity: Duration,
}

/// What approvers consented to, and their unverified signatures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Consent<'a> {
    pub(crate) digest: PaymentDigest,
    pub(crate) proofs: &'a [ApprovalProof],
}

impl Consent<'_> {
    /// What has to be checked of one proof; `None` when there is no such approver, or the signature has the wrong length.
    fn claim(&self, policy: &Policy, proof: &ApprovalProof) -> Option<SignatureClaim> {
        let key = policy.approvers.get(&proof.approver)?.key;
        let message = approval_message(self.digest, &proof.approver, proof.expires_at.timestamp());
        Some(SignatureClaim { key, message, signature: proof.signature.as_slice().try_into().ok()? })
    }

    /// What has to be checked of all proofs. More than any policy needs are refused without checking them.
    pub(crate) fn claims(&self, policy: &Policy) -> Vec<SignatureClaim> {
        if self.proofs.len() > MAX_PROOFS {
            return Vec::new();
        }
        self.proofs.iter().filter_map(|proof| self.claim(policy, proof)).collect()
    }
}

impl Quorum {
    /// Checks every signature, that the approvers are distinct persons, and that none of them is among the `requesters`: the caller
    /// who requested the payment, and for whom.
    pub(crate) fn verify(
        policy: &Policy,
        consent: &Consent<'_>,
        requesters: [&str; 2],
        required: u32,
        checked: &VerifiedSignatures,
    ) -> Result<Self, Refusal> {
        let proofs = consent.proofs;
        if proofs.len() > MAX_PROOFS {
            return Err(refuse("approvals.too_many", format!("more than {MAX_PROOFS} approvals")));
        }
        // Two keys of one person are that person, on both sides.
        let person = |name| policy.approvers.get(name).map_or(name, |approver| approver.person.as_str());
        let requesting = requesters.map(person);
        let mut persons = HashSet::new();
        let mut approvals = Vec::with_capacity(proofs.len());
        for proof in proofs {
            let name = proof.approver.as_str();
            let Some(approver) = policy.approvers.get(name) else {
                return Err(refuse("approvals.unknown_approver", format!("{name:?} is no approver here")));
            };
            if requesters.contains(&name) || requesting.contains(&approver.person.as_str()) {
                return Err(refuse("approvals.requester", format!("{name:?} asked for this payment")));
            }
            if !persons.insert(approver.person.as_str()) {
                let detail = format!("{:?} approved more than once", approver.person);
                return Err(refuse("approvals.same_person", detail));
            }
            let claim = consent.claim(policy, proof);
            if !claim.is_some_and(|claim| checked.holds(&claim)) {
                let detail = format!("the signature of {name:?} is not for exactly this payment");
                return Err(refuse("approvals.signature", detail));
            }
            approvals.push(VerifiedApproval { approver: name.to_owned(), expires_at: proof.expires_at });
        }
        Ok(Self { required, approvals, max_validity: policy.max_approval_validity })
    }

    /// Whether enough of them were valid at `judged_at`: now for a payment that was never signed, afterwards the time of its first
    /// signature, so that a fee bump does not depend on approvers still being awake. How long they may be valid is counted from
    /// `now`, also for one that was renewed after the first signature.
    pub fn judge(&self, judged_at: DateTime<Utc>, now: DateTime<Utc>) -> Result<(), Refusal> {
        let too_long = self
            .approvals
            .iter()
            .find(|approval| (approval.expires_at - now).to_std().is_ok_and(|left| left > self.max_validity));
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
