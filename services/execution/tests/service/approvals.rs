//! Approvals that expire after the quorum and before anything is signed: nothing is signed, nobody else is held up, and the
//! payment goes on as soon as approvers have signed again.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use execution::job::{Approval, JobError, Renewal, State};
use execution::worker::WorkerConfig;
use prost::Message as _;
use proto::intent::v1 as intent;
use proto::intent::v1::record_progress_request::Progress;
use testkit::Mining;
use types::{JobId, WithdrawalId};
use worker::Tick as _;

use crate::chain::{mined_nonce, payments_to};
use crate::signer::KEYS;
use crate::world::{World, ether, fresh_address, worker_config};

fn approval(name: &str, hours: i64) -> Approval {
    let expires_at = Utc::now() + TimeDelta::hours(hours);
    Approval { approver: name.to_owned(), signature: "00ff".to_owned(), expires_at }
}

/// A payment whose approvals have expired when the signer is asked; the signer counts them.
async fn expired(world: &World) -> (JobId, WithdrawalId, String) {
    world.signer.count_approvals();
    let to = fresh_address();
    let mut new = world.withdrawal(&to, ether(1));
    new.approvals = vec![approval("bob", -1)];
    let withdrawal = new.id;
    (world.jobs.enqueue(new).await.unwrap(), withdrawal, to)
}

fn renewal(withdrawal: WithdrawalId, revision: u64) -> Renewal {
    Renewal { withdrawal, approvals: vec![approval("bob", 1)], revision }
}

fn is_blocked(state: &State) -> bool {
    matches!(state, State::Pending { blocked: Some(why), .. } if why.contains("must be renewed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_approvals_hold_one_payment_up_in_sight_and_renewed_ones_let_it_go_on() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, withdrawal, to) = expired(&world).await;
    world.worker().tick().await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert!(is_blocked(&job.state), "{job:#?}");
    assert_eq!((job.tries, job.nonce), (0, None), "no try, and no nonce waits with it");
    assert_eq!(attempts.len(), 1);
    let told = world.messages("intent.RecordProgress").await;
    let last = intent::RecordProgressRequest::decode(told.last().unwrap().as_slice()).unwrap();
    assert!(matches!(last.progress, Some(Progress::Blocked(it)) if it.reason.contains("must be renewed")));
    // Others go on, with the nonce it had.
    let (other, _) = world.pay_somebody().await;
    world.work_until(other, "confirming").await;
    assert_eq!(world.job(other).await.0.nonce, Some(0));
    assert_eq!(world.signer.signatures(), 1, "nothing was signed for the one that waits");
    for _ in 0..2 {
        assert_eq!(world.jobs.renew_approvals(&renewal(withdrawal, 5)).await.unwrap(), id);
    }
    let job = world.work_until(id, "confirming").await;
    assert_eq!((job.blocked, job.tries), (None, 0));
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 2);
    let told = world.messages("intent.RecordProgress").await;
    let unblocked = told.iter().any(|told| {
        let told = intent::RecordProgressRequest::decode(told.as_slice()).unwrap();
        told.withdrawal_id == withdrawal.to_string() && matches!(told.progress, Some(Progress::Unblocked(_)))
    });
    assert!(unblocked, "and intent hears that it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_set_never_replaces_a_newer_one_and_what_is_signed_keeps_its_own() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, withdrawal, _) = expired(&world).await;
    world.jobs.renew_approvals(&renewal(withdrawal, 7)).await.unwrap();
    let stale = Renewal { approvals: vec![approval("eve", -1)], ..renewal(withdrawal, 6) };
    world.jobs.renew_approvals(&stale).await.unwrap();
    assert_eq!(world.job(id).await.0.approvals[0].approver, "bob");
    world.work_until(id, "confirming").await;
    let late = Renewal { approvals: vec![approval("zoe", 1)], ..renewal(withdrawal, 8) };
    world.jobs.renew_approvals(&late).await.unwrap();
    assert_eq!(world.job(id).await.0.approvals[0].approver, "bob", "signed: it needs no other");
    let unknown = world.jobs.renew_approvals(&renewal(WithdrawalId::new(), 1)).await;
    assert!(matches!(unknown, Err(JobError::NoJob(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_while_a_worker_asks_with_the_old_ones_is_not_lost() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, withdrawal, to) = expired(&world).await;
    // The worker stands still with the old approvals in its hands.
    let checkpoints = worker::Checkpoints::halting_at("execution.after_reserve");
    let mut paused = world.worker().with_checkpoints(checkpoints.clone());
    let first = tokio::spawn(async move { paused.tick().await });
    checkpoints.reached().await;
    world.jobs.renew_approvals(&renewal(withdrawal, 2)).await.unwrap();
    checkpoints.release();
    first.await.unwrap().unwrap();
    // Refused for the old ones; due at once for the new ones, and not only after the long pause.
    let mut worker = world.worker();
    worker.tick().await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "confirming");
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_and_a_renewal_in_between_are_still_one_signature() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    world.signer.count_approvals();
    let to = fresh_address();
    let mut new = world.withdrawal(&to, ether(1));
    new.approvals = vec![approval("bob", 1)];
    let withdrawal = new.id;
    let id = world.jobs.enqueue(new).await.unwrap();
    // Signed, and the worker died before it could store the bytes.
    let short = WorkerConfig { lease: Duration::from_millis(300), ..worker_config() };
    world.crash_at("execution.after_sign", short).await;
    world.jobs.renew_approvals(&renewal(withdrawal, 3)).await.unwrap();
    world.work_until(id, "confirming").await;
    assert_eq!(world.signer.signatures(), 1);
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1);
}
