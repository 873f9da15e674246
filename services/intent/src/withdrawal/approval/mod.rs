//! Whether an approval counts.
//!
//! Owns the rules: who may approve, what, until when, and how many are needed. No I/O; public keys, the policy and the time are
//! arguments. It never changes the state: reaching the quorum is an event for `domain`.
//!
//! Invariants: a counted approval was signed by its approver over exactly this payment, with the key that is configured for
//! the approver now, and has not expired; nobody approves a request that they made or that was made on their behalf; one
//! person counts once, under whatever names.

#[cfg(test)]
pub(crate) mod tests;

use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::{Signature, VerifyingKey};
use types::{PaymentDigest, approval_message};

use super::domain::Status;
use super::request::Withdrawal;

/// How far ahead an approval may expire.
pub const MAX_VALIDITY: TimeDelta = TimeDelta::days(7);

/// A counted approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub approver: String,
    pub signature: [u8; 64],
    pub expires_at: DateTime<Utc>,
    pub approved_at: DateTime<Utc>,
}

/// A signed approval as its approver sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    pub approver: String,
    pub signature: [u8; 64],
    /// A whole second, because the signature covers whole seconds.
    pub expires_at: DateTime<Utc>,
}

impl Approval {
    fn consent(&self) -> Consent {
        let Self { approver, signature, expires_at, .. } = self.clone();
        Consent { approver, signature, expires_at }
    }
}

impl Consent {
    pub fn counted(&self, approved_at: DateTime<Utc>) -> Approval {
        let Self { approver, signature, expires_at } = self.clone();
        Approval { approver, signature, expires_at, approved_at }
    }
}

/// What decides about a consent besides the request itself.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalContext<'a> {
    /// The approver's public key, if one is configured.
    pub key: Option<&'a VerifyingKey>,
    /// The person behind the approver's name; the name itself unless configured otherwise.
    pub person: &'a str,
    /// The policy's list; empty admits every approver.
    pub allowed: &'a [String],
    /// The other names of the same person.
    pub aliases: &'a [String],
    /// The approvals so far whose signature still verifies; see [`verified`].
    pub verified: &'a [Approval],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This very consent is already recorded.
    AlreadyRecorded,
    /// It counts. `renews` when it replaces the approver's earlier one, which no longer counts. If the request was already
    /// handed over, `quorum` means that a quorum that was lost is complete again.
    Counts { quorum: bool, renews: bool },
}

/// Why a consent does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Refusal {
    #[error("the withdrawal is {0} and takes no approvals")]
    #[strum(serialize = "WITHDRAWAL_NOT_PENDING")]
    NotPending(Status),
    #[error("who asked for a withdrawal cannot approve it")]
    #[strum(serialize = "APPROVER_IS_REQUESTER")]
    Requester,
    #[error("no public key is configured for this approver")]
    #[strum(serialize = "APPROVER_UNKNOWN")]
    UnknownApprover,
    #[error("the policy of this asset does not name this approver")]
    #[strum(serialize = "APPROVER_NOT_IN_POLICY")]
    NotInPolicy,
    #[error("the approval has expired")]
    #[strum(serialize = "APPROVAL_EXPIRED")]
    Expired,
    #[error("the approval is valid for more than 7 days")]
    #[strum(serialize = "APPROVAL_VALID_TOO_LONG")]
    ValidTooLong,
    #[error("the signature does not match this payment, approver and expiry")]
    #[strum(serialize = "APPROVAL_SIGNATURE_INVALID")]
    BadSignature,
    #[error("this approver has already approved this withdrawal")]
    #[strum(serialize = "APPROVAL_ALREADY_GIVEN")]
    AlreadyApproved,
}

impl Refusal {
    /// The stable reason that programs match on.
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}

/// Decides about a consent at `now`.
pub fn decide(
    withdrawal: &Withdrawal,
    consent: &Consent,
    context: ApprovalContext<'_>,
    now: DateTime<Utc>,
) -> Result<Decision, Refusal> {
    let earlier = withdrawal.approvals.iter().find(|approval| approval.approver == consent.approver);
    let valid = || unexpired(context.verified, now);
    // A replay gets the same answer as the first call, whatever has happened since: its sender may have lost the reply.
    if earlier.is_some_and(|a| a.signature == consent.signature && a.expires_at == consent.expires_at) {
        // Unless enough approvals are valid now: one approver's key was missing from the configuration when the last approval
        // came in and is back, so the repeated call completes the quorum that was missed then.
        let missed = withdrawal.state.status() == Status::Pending
            && valid().any(|approval| approval.approver == consent.approver)
            && enough(valid().count(), withdrawal);
        return Ok(if missed {
            Decision::Counts { quorum: true, renews: true }
        } else {
            Decision::AlreadyRecorded
        });
    }
    if !takes_approvals(withdrawal, context.verified, now) {
        return Err(Refusal::NotPending(withdrawal.state.status()));
    }
    let requesters = [withdrawal.requested_by.as_str(), withdrawal.payload.on_behalf_of.as_str()];
    let names = [consent.approver.as_str(), context.person];
    if names
        .into_iter()
        .chain(context.aliases.iter().map(String::as_str))
        .any(|name| requesters.contains(&name))
    {
        return Err(Refusal::Requester);
    }
    let key = context.key.ok_or(Refusal::UnknownApprover)?;
    if !context.allowed.is_empty() && !context.allowed.contains(&consent.approver) {
        return Err(Refusal::NotInPolicy);
    }
    if consent.expires_at <= now {
        return Err(Refusal::Expired);
    }
    if consent.expires_at > now + MAX_VALIDITY {
        return Err(Refusal::ValidTooLong);
    }
    if !signed(withdrawal.digest(), consent, key) {
        return Err(Refusal::BadSignature);
    }
    // The signer counts persons, so a second name of the same person must not complete a quorum here either.
    let same_person = |name: &String| *name == consent.approver || context.aliases.contains(name);
    if valid().any(|approval| same_person(&approval.approver)) {
        return Err(Refusal::AlreadyApproved);
    }
    // The signer refuses approvals that expired or whose key it does not know, so only valid ones count here.
    let quorum = enough(valid().count() + 1, withdrawal);
    Ok(Decision::Counts { quorum, renews: earlier.is_some() })
}

fn enough(approvals: usize, withdrawal: &Withdrawal) -> bool {
    u32::try_from(approvals).unwrap_or(u32::MAX) >= withdrawal.required_approvals
}

/// Before the quorum, and again when so many approvals became invalid after the handover that the quorum is lost.
fn takes_approvals(withdrawal: &Withdrawal, verified: &[Approval], now: DateTime<Utc>) -> bool {
    match withdrawal.state.status() {
        Status::Pending => true,
        Status::Approved | Status::Queued => !enough(unexpired(verified, now).count(), withdrawal),
        Status::Completed | Status::Failed | Status::Rejected | Status::Cancelled => false,
    }
}

fn signed(digest: PaymentDigest, consent: &Consent, key: &VerifyingKey) -> bool {
    let message = approval_message(digest, &consent.approver, consent.expires_at.timestamp());
    // Strict verification refuses the malleable encodings that plain verification accepts.
    key.verify_strict(&message, &Signature::from_bytes(&consent.signature)).is_ok()
}

/// The approvals whose signature verifies with the key that is configured for the approver now. A key is removed or replaced
/// when it was stolen or its owner has left; the signer would refuse the whole set because of one such approval.
pub fn verified(withdrawal: &Withdrawal, key: impl Fn(&str) -> Option<VerifyingKey>) -> Vec<Approval> {
    let digest = withdrawal.digest();
    let verifies = |approval: &&Approval| {
        key(&approval.approver).is_some_and(|key| signed(digest, &approval.consent(), &key))
    };
    withdrawal.approvals.iter().filter(verifies).cloned().collect()
}

pub fn unexpired(approvals: &[Approval], now: DateTime<Utc>) -> impl Iterator<Item = &Approval> {
    approvals.iter().filter(move |approval| approval.expires_at > now)
}
