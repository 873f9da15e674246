//! Whether an approver's consent counts.
//!
//! Owns the rules of approval: who, for what, until when, how many. No I/O; public keys, the policy and the time are
//! arguments. It never changes the state: reaching the quorum is an event for `domain`.
//!
//! Invariants: a counted approval was signed by its approver over exactly this payment, with the key that is configured for
//! them now, and has not expired; nobody approves what they asked for or what was asked for on their behalf; one person counts
//! once, whatever their names.

use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::{Signature, VerifyingKey};
use types::{PaymentDigest, approval_message};

use super::domain::Status;
use super::request::Withdrawal;

/// The longest a signature may be usable.
pub const MAX_VALIDITY: TimeDelta = TimeDelta::days(7);

/// A counted approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub approver: String,
    pub signature: [u8; 64],
    pub expires_at: DateTime<Utc>,
    pub approved_at: DateTime<Utc>,
}

/// What an approver sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    pub approver: String,
    pub signature: [u8; 64],
    /// A whole second: that is what the signature covers.
    pub expires_at: DateTime<Utc>,
}

impl Approval {
    /// What its approver sent.
    fn consent(&self) -> Consent {
        let Self { approver, signature, expires_at, .. } = self.clone();
        Consent { approver, signature, expires_at }
    }
}

impl Consent {
    /// The approval that it is when it counts.
    pub fn counted(&self, approved_at: DateTime<Utc>) -> Approval {
        let Self { approver, signature, expires_at } = self.clone();
        Approval { approver, signature, expires_at, approved_at }
    }
}

/// Who may approve this request.
#[derive(Debug, Clone, Copy)]
pub struct Electorate<'a> {
    /// The approver's public key, if one is configured.
    pub key: Option<&'a VerifyingKey>,
    /// Who the approver is; their own name unless configured otherwise.
    pub person: &'a str,
    /// The policy's list; empty admits every approver.
    pub approvers: &'a [String],
    /// Names that are the same person's as the approver's.
    pub aliases: &'a [String],
    /// The approvals so far whose signers still hold the key they signed with; see [`vouched`].
    pub vouched: &'a [Approval],
}

/// What a consent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This very consent was recorded before.
    AlreadyRecorded,
    /// It counts. `renews` when it takes the place of the approver's earlier one, which no longer does. Of a request that is on
    /// its way already the quorum is one that was lost and holds again.
    Counts { quorum: bool, renews: bool },
}

/// Why a consent does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the withdrawal is {0} and takes no approvals")]
    NotPending(Status),
    #[error("who asked for a withdrawal cannot approve it")]
    Requester,
    #[error("no public key is configured for this approver")]
    UnknownApprover,
    #[error("the policy of this asset does not name this approver")]
    NotInPolicy,
    #[error("the approval has expired")]
    Expired,
    #[error("the approval is valid for more than 7 days")]
    ValidTooLong,
    #[error("the signature does not match this payment, approver and expiry")]
    BadSignature,
    #[error("this approver has already approved this withdrawal")]
    AlreadyApproved,
}

impl Refusal {
    /// A word that programs may match on; never changes its meaning.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotPending(_) => "WITHDRAWAL_NOT_PENDING",
            Self::Requester => "APPROVER_IS_REQUESTER",
            Self::UnknownApprover => "APPROVER_UNKNOWN",
            Self::NotInPolicy => "APPROVER_NOT_IN_POLICY",
            Self::Expired => "APPROVAL_EXPIRED",
            Self::ValidTooLong => "APPROVAL_VALID_TOO_LONG",
            Self::BadSignature => "APPROVAL_SIGNATURE_INVALID",
            Self::AlreadyApproved => "APPROVAL_ALREADY_GIVEN",
        }
    }
}

/// Judges a consent at `now`.
pub fn decide(
    withdrawal: &Withdrawal,
    consent: &Consent,
    electorate: Electorate<'_>,
    now: DateTime<Utc>,
) -> Result<Decision, Refusal> {
    let earlier = withdrawal.approvals.iter().find(|approval| approval.approver == consent.approver);
    let holding = || usable(electorate.vouched, now);
    // A replay is answered as the first time, whatever has happened since: its sender may have lost the answer.
    if earlier.is_some_and(|a| a.signature == consent.signature && a.expires_at == consent.expires_at) {
        // Unless so many hold by now that the request should have gone on: a key was taken away when the last of them came, and
        // is back. Saying it again makes up for that.
        let missed = withdrawal.state.status() == Status::Pending
            && holding().any(|approval| approval.approver == consent.approver)
            && enough(holding().count(), withdrawal);
        return Ok(if missed {
            Decision::Counts { quorum: true, renews: true }
        } else {
            Decision::AlreadyRecorded
        });
    }
    if !takes_approvals(withdrawal, electorate.vouched, now) {
        return Err(Refusal::NotPending(withdrawal.state.status()));
    }
    let askers = [withdrawal.requested_by.as_str(), withdrawal.payload.on_behalf_of.as_str()];
    let asked = |name: &str| askers.contains(&name);
    if asked(&consent.approver)
        || asked(electorate.person)
        || electorate.aliases.iter().any(|name| asked(name))
    {
        return Err(Refusal::Requester);
    }
    let key = electorate.key.ok_or(Refusal::UnknownApprover)?;
    if !electorate.approvers.is_empty() && !electorate.approvers.contains(&consent.approver) {
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
    // The signer counts persons, so a second name of one of them makes no quorum here either.
    let given = |name: &String| *name == consent.approver || electorate.aliases.contains(name);
    if holding().any(|approval| given(&approval.approver)) {
        return Err(Refusal::AlreadyApproved);
    }
    // The signer refuses those that expired or that it knows no key for, so they do not make a quorum here either.
    let quorum = enough(holding().count() + 1, withdrawal);
    Ok(Decision::Counts { quorum, renews: earlier.is_some() })
}

fn enough(approvals: usize, withdrawal: &Withdrawal) -> bool {
    u32::try_from(approvals).unwrap_or(u32::MAX) >= withdrawal.required_approvals
}

/// Whether more approvals are wanted: before the quorum, and again when so many were lost on the way that it no longer holds.
fn takes_approvals(withdrawal: &Withdrawal, vouched: &[Approval], now: DateTime<Utc>) -> bool {
    match withdrawal.state.status() {
        Status::Pending => true,
        Status::Approved | Status::Queued => !enough(usable(vouched, now).count(), withdrawal),
        Status::Completed | Status::Failed | Status::Rejected | Status::Cancelled => false,
    }
}

fn signed(digest: PaymentDigest, consent: &Consent, key: &VerifyingKey) -> bool {
    let message = approval_message(digest, &consent.approver, consent.expires_at.timestamp());
    // Strict: refuses the malleable encodings that plain verification lets pass.
    key.verify_strict(&message, &Signature::from_bytes(&consent.signature)).is_ok()
}

/// The approvals of a request that are still their approvers' word. Whose key was taken away or replaced since, because it was
/// stolen or its owner has left, has nothing to say any more; the signer would refuse the whole set because of it.
pub fn vouched(withdrawal: &Withdrawal, key: impl Fn(&str) -> Option<VerifyingKey>) -> Vec<Approval> {
    let digest = withdrawal.digest();
    let holds = |approval: &&Approval| {
        key(&approval.approver).is_some_and(|key| signed(digest, &approval.consent(), &key))
    };
    withdrawal.approvals.iter().filter(holds).cloned().collect()
}

/// The approvals among these that have not expired at `now`.
pub fn usable(approvals: &[Approval], now: DateTime<Utc>) -> impl Iterator<Item = &Approval> {
    approvals.iter().filter(move |approval| approval.expires_at > now)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ed25519_dalek::{Signer as _, SigningKey};
    use proptest::prelude::*;
    use types::{Decimals, Priority, RawAmount, UserId, WithdrawalId};

    use super::*;
    use crate::withdrawal::domain::State;
    use crate::withdrawal::request::{IdempotencyKey, Origin, Payload};

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key(name: &str) -> SigningKey {
        let mut seed = [9; 32];
        seed[..name.len()].copy_from_slice(name.as_bytes());
        SigningKey::from_bytes(&seed)
    }

    fn request(required_approvals: u32) -> Withdrawal {
        Withdrawal {
            id: WithdrawalId::new(),
            origin: Origin::Request,
            key: IdempotencyKey::parse("k").unwrap(),
            payload: Payload {
                user_id: UserId::new(),
                chain: "bsc".parse().unwrap(),
                asset: "USDT".parse().unwrap(),
                amount: RawAmount::from(5_u64),
                decimals: Decimals::new(18).unwrap(),
                destination: "0x52908400098527886E0F7030069857D2E4169EE7".parse().unwrap(),
                memo: String::new(),
                priority: Priority::Normal,
                labels: BTreeMap::new(),
                on_behalf_of: String::new(),
            },
            requested_by: "alice".to_owned(),
            required_approvals,
            approvals: Vec::new(),
            state: State::Pending,
            sequence: 1,
            created_at: now(),
            updated_at: now(),
        }
    }

    fn sign(withdrawal: &Withdrawal, approver: &str, expires_at: DateTime<Utc>) -> Consent {
        let message = approval_message(withdrawal.digest(), approver, expires_at.timestamp());
        Consent {
            approver: approver.to_owned(),
            signature: key(approver).sign(&message).to_bytes(),
            expires_at,
        }
    }

    fn judge(withdrawal: &Withdrawal, consent: &Consent) -> Result<Decision, Refusal> {
        judge_with(withdrawal, consent, |name| Some(key(name).verifying_key()))
    }

    /// With the keys that are configured now.
    fn judge_with(
        withdrawal: &Withdrawal,
        consent: &Consent,
        keys: impl Fn(&str) -> Option<VerifyingKey>,
    ) -> Result<Decision, Refusal> {
        let key = keys(&consent.approver);
        let vouched = vouched(withdrawal, keys);
        let person = consent.approver.as_str();
        let electorate =
            Electorate { key: key.as_ref(), person, approvers: &[], aliases: &[], vouched: &vouched };
        decide(withdrawal, consent, electorate, now())
    }

    fn record(withdrawal: &mut Withdrawal, consent: Consent) {
        withdrawal.approvals.push(Approval {
            approver: consent.approver,
            signature: consent.signature,
            expires_at: consent.expires_at,
            approved_at: now(),
        });
    }

    #[test]
    fn the_last_of_the_required_approvals_makes_the_quorum() {
        let mut withdrawal = request(3);
        for (name, quorum) in [("ann", false), ("bob", false), ("cid", true)] {
            let consent = sign(&withdrawal, name, now() + TimeDelta::hours(1));
            assert_eq!(
                judge(&withdrawal, &consent),
                Ok(Decision::Counts { quorum, renews: false }),
                "{name}"
            );
            record(&mut withdrawal, consent.clone());
            let mut refused = Refusal::AlreadyApproved;
            if quorum {
                withdrawal.state = State::Approved { approved_at: now(), refused: None };
                refused = Refusal::NotPending(Status::Approved);
            }
            assert_eq!(judge(&withdrawal, &consent), Ok(Decision::AlreadyRecorded), "{name} again");
            let another = sign(&withdrawal, name, now() + TimeDelta::hours(2));
            assert_eq!(judge(&withdrawal, &another), Err(refused), "{name} anew");
        }
    }

    #[test]
    fn expiry_is_exact() {
        let withdrawal = request(1);
        let at = |expires_at| judge(&withdrawal, &sign(&withdrawal, "ann", expires_at));
        assert_eq!(at(now()), Err(Refusal::Expired));
        assert!(at(now() + TimeDelta::seconds(1)).is_ok());
        assert!(at(now() + MAX_VALIDITY).is_ok());
        assert_eq!(at(now() + MAX_VALIDITY + TimeDelta::seconds(1)), Err(Refusal::ValidTooLong));
    }

    #[test]
    fn an_expired_approval_does_not_count_and_is_renewed() {
        let mut withdrawal = request(2);
        let mut old = sign(&withdrawal, "ann", now() + TimeDelta::hours(1));
        old.expires_at = now();
        record(&mut withdrawal, old);
        let bob = sign(&withdrawal, "bob", now() + TimeDelta::hours(1));
        assert_eq!(judge(&withdrawal, &bob), Ok(Decision::Counts { quorum: false, renews: false }));
        record(&mut withdrawal, bob);
        let renewed = sign(&withdrawal, "ann", now() + TimeDelta::hours(1));
        assert_eq!(judge(&withdrawal, &renewed), Ok(Decision::Counts { quorum: true, renews: true }));
    }

    #[test]
    fn a_quorum_that_expired_on_the_way_is_renewed_and_one_that_holds_is_not_added_to() {
        let mut withdrawal = request(2);
        for name in ["ann", "bob"] {
            let consent = sign(&withdrawal, name, now() + TimeDelta::hours(1));
            record(&mut withdrawal, consent);
        }
        withdrawal.state = State::Approved { approved_at: now(), refused: None };
        let cid = sign(&withdrawal, "cid", now() + TimeDelta::hours(1));
        assert_eq!(judge(&withdrawal, &cid), Err(Refusal::NotPending(Status::Approved)));
        withdrawal.approvals[0].expires_at = now();
        let renewed = sign(&withdrawal, "ann", now() + TimeDelta::hours(2));
        assert_eq!(judge(&withdrawal, &renewed), Ok(Decision::Counts { quorum: true, renews: true }));
        let bob = sign(&withdrawal, "bob", now() + TimeDelta::hours(2));
        assert_eq!(judge(&withdrawal, &bob), Err(Refusal::AlreadyApproved), "his still holds");
        assert_eq!(judge(&withdrawal, &cid), Ok(Decision::Counts { quorum: true, renews: false }));
        withdrawal.state = State::Rejected { reason: "no".to_owned(), finished_at: now() };
        assert_eq!(judge(&withdrawal, &cid), Err(Refusal::NotPending(Status::Rejected)));
    }

    #[test]
    fn the_word_of_a_key_that_was_taken_away_or_replaced_does_not_count() {
        let mut withdrawal = request(2);
        let hour = now() + TimeDelta::hours(1);
        let ann = sign(&withdrawal, "ann", hour);
        record(&mut withdrawal, ann.clone());
        let gone = |name: &str| (name != "ann").then(|| key(name).verifying_key());
        let replaced = |name: &str| Some(key(if name == "ann" { "new" } else { name }).verifying_key());
        let one = Ok(Decision::Counts { quorum: false, renews: false });
        let bob = sign(&withdrawal, "bob", hour);
        assert_eq!(judge_with(&withdrawal, &bob, gone), one);
        assert_eq!(judge_with(&withdrawal, &bob, replaced), one);
        assert_eq!(judge_with(&withdrawal, &ann, gone), Ok(Decision::AlreadyRecorded));
        // With the new key she may say it again.
        let message = approval_message(withdrawal.digest(), "ann", hour.timestamp());
        let anew = Consent { signature: key("new").sign(&message).to_bytes(), ..ann.clone() };
        assert_eq!(
            judge_with(&withdrawal, &anew, replaced),
            Ok(Decision::Counts { quorum: false, renews: true })
        );
        // Handed over already and not enough any more: others may stand in.
        record(&mut withdrawal, bob.clone());
        withdrawal.state = State::Approved { approved_at: now(), refused: None };
        let cid = sign(&withdrawal, "cid", hour);
        assert_eq!(judge(&withdrawal, &cid), Err(Refusal::NotPending(Status::Approved)));
        assert_eq!(judge_with(&withdrawal, &cid, gone), Ok(Decision::Counts { quorum: true, renews: false }));
        // Both hold, and the quorum was missed because a key was away for a while.
        withdrawal.state = State::Pending;
        assert_eq!(judge(&withdrawal, &bob), Ok(Decision::Counts { quorum: true, renews: true }));
        assert_eq!(judge_with(&withdrawal, &bob, gone), Ok(Decision::AlreadyRecorded));
        assert_eq!(judge_with(&withdrawal, &ann, gone), Ok(Decision::AlreadyRecorded));
    }

    #[test]
    fn neither_who_asked_nor_for_whom_nor_another_name_of_theirs_approves() {
        let mut withdrawal = request(2);
        withdrawal.payload.on_behalf_of = "carol".to_owned();
        let judge_as = |withdrawal: &Withdrawal, name: &str, person: &str, aliases: &[String]| {
            let key = key(name).verifying_key();
            let consent = sign(withdrawal, name, now() + TimeDelta::hours(1));
            let vouched = vouched(withdrawal, |name| Some(self::key(name).verifying_key()));
            let electorate =
                Electorate { key: Some(&key), person, approvers: &[], aliases, vouched: &vouched };
            decide(withdrawal, &consent, electorate, now())
        };
        for (name, person, alias) in [
            ("alice", "alice", "x"),
            ("carol", "carol", "x"),
            ("caro-2", "carol", "x"),
            ("ali-2", "a", "alice"),
        ] {
            let refused = judge_as(&withdrawal, name, person, &[alias.to_owned()]);
            assert_eq!(refused, Err(Refusal::Requester), "{name}");
        }
        let ann = sign(&withdrawal, "ann", now() + TimeDelta::hours(1));
        record(&mut withdrawal, ann);
        let twin = judge_as(&withdrawal, "ann-2", "ann", &["ann".to_owned()]);
        assert_eq!(twin, Err(Refusal::AlreadyApproved));
        assert!(judge_as(&withdrawal, "bob", "bob", &[]).is_ok());
    }

    proptest! {
        // Each case checks three signatures, slowly without optimisation.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_signature_counts_for_exactly_one_payment(byte in 0_usize..64, bit in 0_u8..8, amount in 6_u64..) {
            let withdrawal = request(1);
            let mut consent = sign(&withdrawal, "ann", now() + TimeDelta::hours(1));
            let mut dearer = withdrawal.clone();
            dearer.payload.amount = RawAmount::from(amount);
            prop_assert_eq!(judge(&dearer, &consent), Err(Refusal::BadSignature));
            let mut elsewhere = withdrawal.clone();
            elsewhere.id = WithdrawalId::new();
            prop_assert_eq!(judge(&elsewhere, &consent), Err(Refusal::BadSignature));
            consent.signature[byte] ^= 1 << bit;
            prop_assert_eq!(judge(&withdrawal, &consent), Err(Refusal::BadSignature));
        }
    }
}
