//! Approvers' signatures of many requests, checked together: one equation over all of them costs about a third of one for
//! each.
//!
//! Owns which signatures are known to hold, each with the exact key and message it holds for. It never takes a failed
//! equation for an answer: then every signature is checked by itself, strictly, so one bad request among many is found and
//! spoils no other.
//!
//! What the equation proves is what matters here: that whoever holds the approver's key signed this message. Unlike the strict
//! check it may let pass a signature that its own signer has disfigured by a point of small order; nobody else can make one,
//! and keys of small order are refused by the configuration.

use std::collections::HashSet;
use std::sync::Arc;

use ed25519_dalek::{Signature, VerifyingKey, verify_batch};
use tokio::sync::{mpsc, oneshot};

/// Fewer than this are checked one by one: the equation has a fixed cost.
const WORTH_IT: usize = 4;
/// Signatures in one equation at most; beyond this they gain little, and a failure costs more.
const TOGETHER: usize = 256;
/// Calls that may wait to have theirs checked with those of others. One that finds no room checks its own.
const WAITING: usize = 1_024;
/// Calls whose signatures are checked together at most: bounds how long the first of them waits for the last.
const CALLS: usize = 32;

/// A signature, whose it is said to be, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) key: VerifyingKey,
    pub(crate) message: Vec<u8>,
    pub(crate) signature: [u8; 64],
}

#[derive(Debug, Default)]
pub(crate) struct CheckedSignatures {
    known: HashSet<Claim>,
}

impl CheckedSignatures {
    /// Checks these together. What is not among the known ones afterwards has yet to be checked.
    pub(crate) fn together(claims: Vec<Claim>) -> Self {
        let mut known = HashSet::with_capacity(claims.len());
        let mut rest = claims;
        while rest.len() >= WORTH_IT {
            let later = rest.split_off(rest.len().min(TOGETHER));
            if hold(&rest) {
                known.extend(rest);
            }
            rest = later;
        }
        Self { known }
    }

    /// Whether the signature holds: known already, or checked now.
    pub(crate) fn holds(&self, claim: &Claim) -> bool {
        let strictly = |claim: &Claim| {
            claim.key.verify_strict(&claim.message, &Signature::from_bytes(&claim.signature)).is_ok()
        };
        self.known.contains(claim) || strictly(claim)
    }
}

type Waiting = (Vec<Claim>, oneshot::Sender<Arc<CheckedSignatures>>);

/// Checks together what calls that arrive at the same time bring. While it works the next ones gather, so nobody waits for
/// company. Clones share it; its task ends with the last one.
#[derive(Debug, Clone)]
pub(crate) struct Checker {
    incoming: mpsc::Sender<Waiting>,
}

impl Checker {
    /// Starts the task; to be called inside a Tokio runtime.
    pub(crate) fn start() -> Self {
        let (incoming, mut waiting) = mpsc::channel::<Waiting>(WAITING);
        tokio::spawn(async move {
            let mut calls = Vec::with_capacity(CALLS);
            while waiting.recv_many(&mut calls, CALLS).await > 0 {
                let (claims, answers): (Vec<Vec<Claim>>, Vec<_>) = calls.drain(..).unzip();
                let checked = Arc::new(CheckedSignatures::together(claims.into_iter().flatten().collect()));
                for answer in answers {
                    // A caller that went away has no use for it.
                    let _ = answer.send(Arc::clone(&checked));
                }
                // It may find the next ones waiting for ever; others on this thread shall have their turn.
                tokio::task::yield_now().await;
            }
        });
        Self { incoming }
    }

    /// What is known to hold once these were checked. Without room, or without the task, that is nothing, and each is checked
    /// when it is asked for.
    pub(crate) async fn check(&self, claims: Vec<Claim>) -> Arc<CheckedSignatures> {
        if claims.is_empty() {
            return Arc::default();
        }
        let (answer, told) = oneshot::channel();
        match self.incoming.try_send((claims, answer)) {
            Ok(()) => told.await.unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }
}

fn hold(claims: &[Claim]) -> bool {
    let messages: Vec<&[u8]> = claims.iter().map(|claim| claim.message.as_slice()).collect();
    let signatures: Vec<Signature> =
        claims.iter().map(|claim| Signature::from_bytes(&claim.signature)).collect();
    let keys: Vec<VerifyingKey> = claims.iter().map(|claim| claim.key).collect();
    verify_batch(&messages, &signatures, &keys).is_ok()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use futures::FutureExt as _;

    use super::*;

    fn claims(count: u8) -> Vec<Claim> {
        let claim = |number: u8| {
            let key = SigningKey::from_bytes(&[1 + number % 3; 32]);
            let message = vec![number; 40];
            let signature = key.sign(&message).to_bytes();
            Claim { key: key.verifying_key(), message, signature }
        };
        (0..count).map(claim).collect()
    }

    #[test]
    fn good_signatures_are_known_after_one_equation() {
        let claims = claims(9);
        let checked = CheckedSignatures::together(claims.clone());
        assert_eq!(checked.known.len(), 9);
        assert!(claims.iter().all(|claim| checked.holds(claim)));
    }

    #[test]
    fn a_bad_signature_is_found_and_spoils_no_other() {
        let mut claims = claims(9);
        claims[4].signature[3] ^= 1;
        claims[5].message[0] ^= 1;
        claims[6].key = claims[7].key;
        let checked = CheckedSignatures::together(claims.clone());
        assert!(checked.known.is_empty());
        let bad: Vec<usize> = (0..9).filter(|place| !checked.holds(&claims[*place])).collect();
        assert_eq!(bad, [4, 5, 6]);
    }

    #[test]
    fn a_known_signature_vouches_for_no_other_key_or_message() {
        let claims = claims(6);
        let checked = CheckedSignatures::together(claims.clone());
        let other_message = Claim { message: vec![9; 40], ..claims[0].clone() };
        let other_key = Claim { key: claims[1].key, ..claims[0].clone() };
        assert!(!checked.holds(&other_message) && !checked.holds(&other_key));
    }

    /// Starts the calls before the task can take the first of them: this test's runtime has one thread.
    async fn at_once(calls: Vec<Vec<Claim>>) -> Vec<Arc<CheckedSignatures>> {
        let checker = Checker::start();
        futures::future::join_all(calls.into_iter().map(|claims| checker.check(claims))).await
    }

    #[tokio::test]
    async fn calls_that_arrive_together_are_checked_by_one_equation() {
        let claims = claims(6);
        let calls: Vec<Vec<Claim>> = claims.chunks(2).map(<[Claim]>::to_vec).collect();
        for checked in at_once(calls).await {
            assert_eq!(checked.known.len(), 6);
        }
        let alone = at_once(vec![claims[..2].to_vec(), Vec::new()]).await;
        assert!(alone.iter().all(|checked| checked.known.is_empty()));
        assert!(claims[..2].iter().all(|claim| alone[0].holds(claim)));
    }

    #[tokio::test]
    async fn a_bad_signature_spoils_no_other_call() {
        let mut claims = claims(8);
        claims[5].signature[3] ^= 1;
        let calls: Vec<Vec<Claim>> = claims.chunks(2).map(<[Claim]>::to_vec).collect();
        let checked = at_once(calls).await;
        let bad: Vec<usize> = (0..8).filter(|place| !checked[place / 2].holds(&claims[*place])).collect();
        assert_eq!(bad, [5]);
    }

    #[tokio::test]
    async fn without_room_or_without_the_task_a_call_checks_its_own() {
        let claims = claims(6);
        let (incoming, waiting) = mpsc::channel(1);
        let checker = Checker { incoming };
        assert!(checker.check(claims.clone()).now_or_never().is_none(), "there was room for one");
        for _ in 0..2 {
            let checked = checker.check(claims.clone()).await;
            assert!(checked.known.is_empty() && checked.holds(&claims[0]));
        }
        drop(waiting);
        assert!(checker.check(claims).await.known.is_empty());
    }

    #[test]
    fn many_are_checked_in_parts_and_a_few_one_by_one() {
        let mut many = Vec::new();
        for _ in 0..3 {
            many.extend(claims(100));
        }
        assert_eq!(CheckedSignatures::together(many).known.len(), 100);
        let few = claims(2);
        let checked = CheckedSignatures::together(few.clone());
        assert!(checked.known.is_empty() && few.iter().all(|claim| checked.holds(claim)));
    }
}
