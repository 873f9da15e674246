//! Approvers' signatures of many requests, verified as a batch: one equation over all of them costs about a third of verifying
//! each by itself.
//!
//! Owns which signatures are known to be valid, each with the exact key and message it is valid for. A failed equation decides
//! nothing: every signature is then verified by itself, strictly, so that one bad request is found and does not affect others.
//!
//! The batch equation proves what matters here: that whoever holds the approver's key signed this message. Unlike the strict
//! check it may accept a signature that its own signer has altered by a point of small order; nobody else can make one,
//! and the configuration refuses keys of small order.

use std::collections::HashSet;
use std::sync::Arc;

use ed25519_dalek::{Signature, VerifyingKey, verify_batch};
use tokio::sync::{mpsc, oneshot};

/// Fewer than this are checked one by one, because the equation has a fixed cost.
const MIN_BATCH: usize = 4;
/// Signatures in one equation at most. Larger batches gain little, and a failure costs more.
const MAX_BATCH: usize = 256;
/// Calls that may wait to have their signatures checked with those of others. A call that finds no room checks its own.
const MAX_WAITING: usize = 1_024;
/// Calls whose signatures share a batch at most. This bounds how long the first of them waits for the last.
const MAX_CALLS: usize = 32;

/// A signature, with the key and the message that it is said to be for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SignatureClaim {
    pub(crate) key: VerifyingKey,
    pub(crate) message: Vec<u8>,
    pub(crate) signature: [u8; 64],
}

#[derive(Debug, Default)]
pub(crate) struct VerifiedSignatures {
    known: HashSet<SignatureClaim>,
}

impl VerifiedSignatures {
    /// Checks these as a batch. What is not among the known ones afterwards has yet to be checked.
    pub(crate) fn check_batch(claims: Vec<SignatureClaim>) -> Self {
        let mut known = HashSet::with_capacity(claims.len());
        let mut rest = claims;
        while rest.len() >= MIN_BATCH {
            let later = rest.split_off(rest.len().min(MAX_BATCH));
            if hold(&rest) {
                known.extend(rest);
            }
            rest = later;
        }
        Self { known }
    }

    /// Whether the signature is valid: known already, or checked now.
    pub(crate) fn holds(&self, claim: &SignatureClaim) -> bool {
        let strictly = |claim: &SignatureClaim| {
            claim.key.verify_strict(&claim.message, &Signature::from_bytes(&claim.signature)).is_ok()
        };
        self.known.contains(claim) || strictly(claim)
    }
}

type WaitingCall = (Vec<SignatureClaim>, oneshot::Sender<Arc<VerifiedSignatures>>);

/// Checks the signatures of calls that arrive at the same time as one batch. While it works the next calls queue up, so no call
/// waits for others to arrive. Clones share one task, which ends with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct SignatureChecker {
    incoming: mpsc::Sender<WaitingCall>,
}

impl SignatureChecker {
    /// Starts the task; to be called inside a Tokio runtime.
    pub(crate) fn start() -> Self {
        let (incoming, mut waiting) = mpsc::channel::<WaitingCall>(MAX_WAITING);
        tokio::spawn(async move {
            let mut calls = Vec::with_capacity(MAX_CALLS);
            while waiting.recv_many(&mut calls, MAX_CALLS).await > 0 {
                let (claims, replies): (Vec<Vec<SignatureClaim>>, Vec<_>) = calls.drain(..).unzip();
                let checked =
                    Arc::new(VerifiedSignatures::check_batch(claims.into_iter().flatten().collect()));
                for reply in replies {
                    // A caller that went away does not need it.
                    let _ = reply.send(Arc::clone(&checked));
                }
                // Under load the next calls are always waiting; without this, other tasks of the thread would never run.
                tokio::task::yield_now().await;
            }
        });
        Self { incoming }
    }

    /// The valid ones among these, once they were checked. Without room in the queue that is none of them, and each is checked
    /// when it is needed.
    pub(crate) async fn check(&self, claims: Vec<SignatureClaim>) -> Arc<VerifiedSignatures> {
        if claims.is_empty() {
            return Arc::default();
        }
        let (reply, checked) = oneshot::channel();
        match self.incoming.try_send((claims, reply)) {
            Ok(()) => checked.await.unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }
}

fn hold(claims: &[SignatureClaim]) -> bool {
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

    fn claims(count: u8) -> Vec<SignatureClaim> {
        let claim = |number: u8| {
            let key = SigningKey::from_bytes(&[1 + number % 3; 32]);
            let message = vec![number; 40];
            let signature = key.sign(&message).to_bytes();
            SignatureClaim { key: key.verifying_key(), message, signature }
        };
        (0..count).map(claim).collect()
    }

    #[test]
    fn good_signatures_are_known_after_one_equation() {
        let claims = claims(9);
        let checked = VerifiedSignatures::check_batch(claims.clone());
        assert_eq!(checked.known.len(), 9);
        assert!(claims.iter().all(|claim| checked.holds(claim)));
    }

    #[test]
    fn a_bad_signature_is_found_and_spoils_no_other() {
        let mut claims = claims(9);
        claims[4].signature[3] ^= 1;
        claims[5].message[0] ^= 1;
        claims[6].key = claims[7].key;
        let checked = VerifiedSignatures::check_batch(claims.clone());
        assert!(checked.known.is_empty());
        let bad: Vec<usize> = (0..9).filter(|place| !checked.holds(&claims[*place])).collect();
        assert_eq!(bad, [4, 5, 6]);
    }

    #[test]
    fn a_known_signature_vouches_for_no_other_key_or_message() {
        let claims = claims(6);
        let checked = VerifiedSignatures::check_batch(claims.clone());
        let other_message = SignatureClaim { message: vec![9; 40], ..claims[0].clone() };
        let other_key = SignatureClaim { key: claims[1].key, ..claims[0].clone() };
        assert!(!checked.holds(&other_message) && !checked.holds(&other_key));
    }

    /// Starts the calls before the task can take the first of them: this test's runtime has one thread.
    async fn at_once(calls: Vec<Vec<SignatureClaim>>) -> Vec<Arc<VerifiedSignatures>> {
        let checker = SignatureChecker::start();
        futures::future::join_all(calls.into_iter().map(|claims| checker.check(claims))).await
    }

    #[tokio::test]
    async fn calls_that_arrive_together_are_checked_by_one_equation() {
        let claims = claims(6);
        let calls: Vec<Vec<SignatureClaim>> = claims.chunks(2).map(<[SignatureClaim]>::to_vec).collect();
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
        let calls: Vec<Vec<SignatureClaim>> = claims.chunks(2).map(<[SignatureClaim]>::to_vec).collect();
        let checked = at_once(calls).await;
        let bad: Vec<usize> = (0..8).filter(|place| !checked[place / 2].holds(&claims[*place])).collect();
        assert_eq!(bad, [5]);
    }

    #[tokio::test]
    async fn without_room_or_without_the_task_a_call_checks_its_own() {
        let claims = claims(6);
        let (incoming, waiting) = mpsc::channel(1);
        let checker = SignatureChecker { incoming };
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
        assert_eq!(VerifiedSignatures::check_batch(many).known.len(), 100);
        let few = claims(2);
        let checked = VerifiedSignatures::check_batch(few.clone());
        assert!(checked.known.is_empty() && few.iter().all(|claim| checked.holds(claim)));
    }
}
