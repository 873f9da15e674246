//! Who may approve, and when an approval counts.

use ed25519_dalek::{Signer as _, SigningKey};
use proptest::prelude::*;
use types::{RawAmount, WithdrawalId};

use super::*;
use crate::withdrawal::domain::State;
use crate::withdrawal::request::tests::payload;
use crate::withdrawal::request::{IdempotencyKey, Origin};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

pub(crate) fn key(name: &str) -> SigningKey {
    let mut seed = [9; 32];
    seed[..name.len()].copy_from_slice(name.as_bytes());
    SigningKey::from_bytes(&seed)
}

fn request(required_approvals: u32) -> Withdrawal {
    Withdrawal {
        id: WithdrawalId::new(),
        origin: Origin::Request,
        key: IdempotencyKey::parse("k").unwrap(),
        payload: payload(),
        requested_by: "alice".to_owned(),
        required_approvals,
        approvals: Vec::new(),
        state: State::Pending,
        sequence: 1,
        created_at: now(),
        updated_at: now(),
    }
}

pub(crate) fn sign(withdrawal: &Withdrawal, approver: &str, expires_at: DateTime<Utc>) -> Consent {
    let message = approval_message(withdrawal.digest(), approver, expires_at.timestamp());
    Consent { approver: approver.to_owned(), signature: key(approver).sign(&message).to_bytes(), expires_at }
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
    let verified = verified(withdrawal, keys);
    let person = consent.approver.as_str();
    let context =
        ApprovalContext { key: key.as_ref(), person, allowed: &[], aliases: &[], verified: &verified };
    decide(withdrawal, consent, context, now())
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
        assert_eq!(judge(&withdrawal, &consent), Ok(Decision::Counts { quorum, renews: false }), "{name}");
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
fn a_quorum_that_expired_after_the_handover_is_renewed_and_a_valid_one_takes_no_more() {
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
    assert_eq!(judge(&withdrawal, &bob), Err(Refusal::AlreadyApproved), "his is still valid");
    assert_eq!(judge(&withdrawal, &cid), Ok(Decision::Counts { quorum: true, renews: false }));
    withdrawal.state = State::Rejected { reason: "no".to_owned(), finished_at: now() };
    assert_eq!(judge(&withdrawal, &cid), Err(Refusal::NotPending(Status::Rejected)));
}

#[test]
fn an_approval_by_a_key_that_was_removed_or_replaced_does_not_count() {
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
    // With the new key she may approve again.
    let message = approval_message(withdrawal.digest(), "ann", hour.timestamp());
    let anew = Consent { signature: key("new").sign(&message).to_bytes(), ..ann.clone() };
    assert_eq!(
        judge_with(&withdrawal, &anew, replaced),
        Ok(Decision::Counts { quorum: false, renews: true })
    );
    // Already handed over and no longer enough: others may approve instead.
    record(&mut withdrawal, bob.clone());
    withdrawal.state = State::Approved { approved_at: now(), refused: None };
    let cid = sign(&withdrawal, "cid", hour);
    assert_eq!(judge(&withdrawal, &cid), Err(Refusal::NotPending(Status::Approved)));
    assert_eq!(judge_with(&withdrawal, &cid, gone), Ok(Decision::Counts { quorum: true, renews: false }));
    // Both are valid, and the quorum was missed because a key was missing for a while.
    withdrawal.state = State::Pending;
    assert_eq!(judge(&withdrawal, &bob), Ok(Decision::Counts { quorum: true, renews: true }));
    assert_eq!(judge_with(&withdrawal, &bob, gone), Ok(Decision::AlreadyRecorded));
    assert_eq!(judge_with(&withdrawal, &ann, gone), Ok(Decision::AlreadyRecorded));
}

#[test]
fn neither_the_requester_nor_the_person_it_is_for_nor_another_of_their_names_approves() {
    let mut withdrawal = request(2);
    withdrawal.payload.on_behalf_of = "carol".to_owned();
    let judge_as = |withdrawal: &Withdrawal, name: &str, person: &str, aliases: &[String]| {
        let key = key(name).verifying_key();
        let consent = sign(withdrawal, name, now() + TimeDelta::hours(1));
        let verified = verified(withdrawal, |name| Some(self::key(name).verifying_key()));
        let context = ApprovalContext { key: Some(&key), person, allowed: &[], aliases, verified: &verified };
        decide(withdrawal, &consent, context, now())
    };
    for (name, person, alias) in
        [("alice", "alice", "x"), ("carol", "carol", "x"), ("caro-2", "carol", "x"), ("ali-2", "a", "alice")]
    {
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
        let mut larger = withdrawal.clone();
        larger.payload.amount = RawAmount::from(amount);
        prop_assert_eq!(judge(&larger, &consent), Err(Refusal::BadSignature));
        let mut elsewhere = withdrawal.clone();
        elsewhere.id = WithdrawalId::new();
        prop_assert_eq!(judge(&elsewhere, &consent), Err(Refusal::BadSignature));
        consent.signature[byte] ^= 1 << bit;
        prop_assert_eq!(judge(&withdrawal, &consent), Err(Refusal::BadSignature));
    }
}
