//! What confirmation says, and what becomes of the job.

use chrono::Utc;
use execution::job::{AfterClosing, AttemptStatus, Exit, ImportedJob, JobError, State};
use execution::worker::resend::ResendWorker;
use payment::{Finding, Price};
use prost::Message as _;
use testkit::Mining;
use types::{JobId, TxHash};
use worker::Tick as _;

use crate::chain::{mined_nonce, payments_to};
use crate::findings::{cancelled, contradicted, reverted, settled, stuck, verdict, void};
use crate::signer::KEYS;
use crate::world::{World, bsc, ether, worker_config};

async fn reserved(world: &World) -> types::RawAmount {
    world.wallets.list(Some(&bsc()), None).await.unwrap()[0].holdings[0].reserved
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_confirms_once_and_releases_the_reservation_once() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    assert_eq!(reserved(&world).await, ether(1));
    let verdict = settled(id, job.tx_hash.unwrap());
    for _ in 0..3 {
        world.jobs.record_verdict(&verdict).await.unwrap();
    }
    // The same finding under another id changes nothing either.
    world.jobs.record_verdict(&settled(id, job.tx_hash.unwrap())).await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!(job.state.name(), "confirmed");
    assert_eq!(job.fee_paid, types::RawAmount::from(21_000_000_000_000u64));
    assert_eq!(attempts[0].status, AttemptStatus::Settled);
    assert!(reserved(&world).await.is_zero());
    assert!(world.jobs.lanes(None).await.unwrap()[0].open_nonces.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_about_somebody_elses_hash_or_job_is_refused() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    let foreign = world.jobs.record_verdict(&settled(id, TxHash::from([9; 32]))).await;
    assert!(matches!(foreign, Err(JobError::ForeignHash { .. })));
    let unknown = world.jobs.record_verdict(&settled(JobId::new(), TxHash::from([9; 32]))).await;
    assert!(matches!(unknown, Err(JobError::NoJob(_))));
    assert_eq!(world.job(id).await.0.state.name(), "confirming");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revert_costs_a_try_and_the_next_attempt_carries_the_proof() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.record_verdict(&reverted(id, job.tx_hash.unwrap(), false)).await.unwrap();
    let (job, _) = world.job(id).await;
    assert_eq!((job.state.name(), job.tries), ("pending", 1));
    world.work_until(id, "confirming").await;
    let (job, attempts) = world.job(id).await;
    assert_eq!(attempts.len(), 2);
    assert_eq!((attempts[0].nonce, attempts[1].nonce), (Some(0), Some(1)));
    assert!(attempts[1].void_proof.is_some());
    // A late replay about the first nonce does not touch the second.
    world.jobs.record_verdict(&reverted(id, attempts[0].tx_hash.unwrap(), false)).await.unwrap();
    assert_eq!((world.job(id).await.0.state.name(), job.nonce), ("confirming", Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_value_parks_and_nobody_can_retry_it_or_call_it_failed() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.record_verdict(&reverted(id, job.tx_hash.unwrap(), true)).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "parked");
    assert!(
        reserved(&world).await.is_zero(),
        "it never pays again: the rest of the wallet is not held for it"
    );
    assert!(matches!(world.jobs.retry(id).await, Err(JobError::Illegal(_))));
    let cancelled = world.jobs.cancel(id, "never mind".to_owned()).await;
    assert!(matches!(cancelled, Err(JobError::Illegal(_))));
    assert_eq!(world.job(id).await.0.state.name(), "parked");
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_raises_the_fee_at_the_same_nonce_and_watches_both_hashes() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.record_verdict(&stuck(id, job.tx_hash.unwrap())).await.unwrap();
    world.worker().tick().await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!(job.state.name(), "confirming");
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].nonce, attempts[1].nonce);
    let [before, after] = [0, 1].map(|index| match attempts[index].price {
        Some(Price::Gas { fee, .. }) => fee.ceiling(),
        other => panic!("{other:?} is no price of gas"),
    });
    assert!(after * 1000 >= before * 1125);
    let watches = world.messages("confirmation.PutWatch").await;
    let last = proto::confirmation::v1::PutWatchRequest::decode(watches.last().unwrap().as_slice()).unwrap();
    assert_eq!(last.transactions.len(), 2);
    world.anvil.mine(1).await;
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    // Whichever was mined counts.
    world.jobs.record_verdict(&settled(id, attempts[1].tx_hash.unwrap())).await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!(job.state, State::Confirmed { tx_hash: attempts[1].tx_hash.unwrap() });
    assert_eq!(attempts[0].status, AttemptStatus::Void);
}

/// The transactions that confirmation was last asked to watch.
async fn last_watch(world: &World) -> Vec<String> {
    let watches = world.messages("confirmation.PutWatch").await;
    let last = proto::confirmation::v1::PutWatchRequest::decode(watches.last().unwrap().as_slice()).unwrap();
    last.transactions.into_iter().map(|transaction| transaction.tx_hash).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_watched_before_they_can_be_sent() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    world.crash_at("execution.after_persist", worker_config()).await;
    let (job, attempts) = world.job(id).await;
    assert_eq!((job.state.name(), attempts[0].sends), ("processing", 0));
    assert_eq!(last_watch(&world).await, [attempts[0].tx_hash.unwrap().to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_newest_bytes_are_not_taken_for_somebody_elses() {
    for give_up in [false, true] {
        let world = World::new(Mining::Manual).await;
        world.hot_wallet(0).await;
        let (id, to) = world.pay_somebody().await;
        let job = world.work_until(id, "confirming").await;
        let first = job.tx_hash.unwrap();
        world.jobs.record_verdict(&stuck(id, first)).await.unwrap();
        // The worker dies with the dearer bytes sent, and they are mined before confirmation hears of them.
        world.crash_at("execution.after_broadcast", worker_config()).await;
        world.anvil.mine(1).await;
        assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
        if give_up {
            world.jobs.cancel(id, "customer asked".to_owned()).await.unwrap();
        }
        let told = world.messages("confirmation.PutWatch").await.len();
        world.jobs.record_verdict(&void(id, vec![first])).await.unwrap();
        let (job, attempts) = world.job(id).await;
        assert_eq!((job.state.name(), job.nonce), ("confirming", Some(0)), "nothing is decided");
        assert!(attempts.iter().all(|attempt| attempt.status != AttemptStatus::Void), "{attempts:#?}");
        assert!(world.jobs.lanes(None).await.unwrap()[0].halted_reason.is_none(), "nobody else used it");
        assert_eq!(world.messages("confirmation.PutWatch").await.len(), told + 1, "told again");
        assert_eq!(last_watch(&world).await.len(), 2);
        let paid = attempts[1].tx_hash.unwrap();
        world.jobs.record_verdict(&settled(id, paid)).await.unwrap();
        assert_eq!(world.job(id).await.0.state, State::Confirmed { tx_hash: paid });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_contradicted_without_a_transaction_of_ours_is_parked_before_it_pays_again() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.record_verdict(&void(id, vec![job.tx_hash.unwrap()])).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "pending");
    let gone = contradicted(id, None, "the foreign transaction is gone");
    world.jobs.record_verdict(&gone).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "parked");
    // What was called void may come back: a person's word must not make a second payment of it, nor call it failed.
    assert!(matches!(world.jobs.retry(id).await, Err(JobError::Illegal(_))));
    assert!(matches!(world.jobs.cancel(id, "give up".to_owned()).await, Err(JobError::Illegal(_))));
    assert_eq!((world.job(id).await.1.len(), world.signer.signatures()), (1, 1));
}

/// A job whose first transaction was called void and whose second is on its way.
async fn on_its_second_nonce(world: &World) -> (JobId, TxHash) {
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let first = world.work_until(id, "confirming").await.tx_hash.unwrap();
    world.jobs.record_verdict(&void(id, vec![first])).await.unwrap();
    world.jobs.resume_lane(&bsc(), KEYS[0].1).await.unwrap();
    world.work_until(id, "confirming").await;
    assert_eq!(world.job(id).await.0.nonce, Some(1));
    (id, first)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_paid_though_it_was_called_dead_is_never_paid_again_and_its_open_nonce_can_be_closed() {
    let world = World::new(Mining::Manual).await;
    let (id, first) = on_its_second_nonce(&world).await;
    world.jobs.record_verdict(&settled(id, first)).await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!((job.state.name(), job.nonce), ("parked", Some(1)));
    assert!(matches!(job.state, State::Parked { exit: Exit::Close { then: AfterClosing::Park, .. }, .. }));
    // Nobody sends the second payment any more.
    let sends = attempts[1].sends;
    sqlx::query("UPDATE attempts SET last_sent_at = NULL").execute(&world.pool).await.unwrap();
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    resend.tick().await.unwrap();
    assert_eq!(world.job(id).await.1[1].sends, sends);
    assert!(matches!(world.jobs.retry(id).await, Err(JobError::Illegal(_))));
    // A person has its nonce closed; that makes no failure of it.
    world.jobs.cancel(id, "paid already".to_owned()).await.unwrap();
    world.work_until(id, "confirming").await;
    let closing = world.job(id).await.1.pop().unwrap();
    assert_eq!((closing.action.name(), closing.nonce), ("cancel", Some(1)));
    world.jobs.record_verdict(&cancelled(id, closing.tx_hash.unwrap(), None)).await.unwrap();
    let (job, _) = world.job(id).await;
    assert_eq!((job.state.name(), job.nonce), ("parked", None));
    assert!(matches!(world.jobs.retry(id).await, Err(JobError::Illegal(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_void_of_an_old_nonce_closes_no_other_and_costs_no_try() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let first = world.work_until(id, "confirming").await.tx_hash.unwrap();
    world.jobs.record_verdict(&void(id, vec![first])).await.unwrap();
    world.jobs.resume_lane(&bsc(), KEYS[0].1).await.unwrap();
    // Said once more, while it holds no nonce.
    world.jobs.record_verdict(&void(id, vec![first])).await.unwrap();
    assert_eq!(world.job(id).await.0.tries, 1);
    // And again, while nothing is signed yet at the next one.
    world.crash_at("execution.after_reserve", worker_config()).await;
    world.jobs.record_verdict(&void(id, vec![first])).await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!((job.state.name(), job.nonce, job.tries), ("processing", Some(1), 1));
    assert_eq!(attempts[1].status, AttemptStatus::Reserved);
    assert!(world.jobs.lanes(None).await.unwrap()[0].halted_reason.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_fails_only_when_its_cancellation_is_final() {
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    let job = world.jobs.cancel(id, "customer asked".to_owned()).await.unwrap();
    assert_eq!(job.state.name(), "confirming");
    world.worker().tick().await.unwrap();
    let (job, attempts) = world.job(id).await;
    assert_eq!(job.state.name(), "confirming", "not failed while it can still be paid");
    let cancellation = attempts.last().unwrap();
    assert_eq!((cancellation.action.name(), cancellation.nonce), ("cancel", Some(0)));
    world.anvil.mine(1).await;
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    let done = cancelled(id, cancellation.tx_hash.unwrap(), None);
    world.jobs.record_verdict(&done).await.unwrap();
    let (job, _) = world.job(id).await;
    assert_eq!(job.state, State::Failed { reason: "customer asked".to_owned() });
    assert!(reserved(&world).await.is_zero());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_wins_against_its_cancellation_is_confirmed() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.jobs.cancel(id, "too late".to_owned()).await.unwrap();
    world.worker().tick().await.unwrap();
    world.jobs.record_verdict(&settled(id, job.tx_hash.unwrap())).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "confirmed");
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untouched_job_is_cancelled_at_once() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.jobs.cancel(id, "never mind".to_owned()).await.unwrap();
    assert_eq!(job.state.name(), "failed");
    world.worker().tick().await.unwrap();
    assert!(payments_to(&world.anvil, &to).await.is_empty());
    assert!(reserved(&world).await.is_zero());
    assert!(world.jobs.cancel(id, "again".to_owned()).await.is_ok(), "a repetition is no error");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_to_call_a_job_with_a_nonce_failed() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, _) = world.pay_somebody().await;
    world.work_until(id, "confirming").await;
    let forced = sqlx::query(
        "UPDATE jobs SET status = 'failed', error = 'x', finished_at = now(), reserved = false WHERE id = $1",
    )
    .bind(id.as_uuid())
    .execute(&world.pool)
    .await
    .unwrap_err();
    assert_eq!(db::constraint(&forced), Some("jobs_failed_holds_no_nonce"));
    let moved = sqlx::query("UPDATE jobs SET wallet_id = NULL WHERE id = $1").bind(id.as_uuid());
    let moved = moved.execute(&world.pool).await.unwrap_err();
    assert_eq!(db::constraint(&moved), Some("jobs_wallet_for_ever"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_undone_by_a_reorganisation_is_sent_again_unchanged() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    world.anvil.call("anvil_reorg", serde_json::json!([1, []])).await;
    assert_eq!(mined_nonce(&world.anvil, KEYS[0].1).await, 0, "undone");
    let reopened = verdict(id, Finding::Reopened { tx: job.tx_hash.unwrap(), block_hash: None });
    world.jobs.record_verdict(&reopened).await.unwrap();
    let mut resend = ResendWorker::new(world.pool.clone(), bsc(), world.chains.clone(), world.config.clone());
    let mut patience = testkit::Patience::of(crate::world::LIMIT);
    while mined_nonce(&world.anvil, KEYS[0].1).await == 0 {
        assert!(!patience.is_over(), "never mined again");
        resend.tick().await.unwrap();
    }
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
    assert_eq!((world.signer.signatures(), world.job(id).await.1.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_payment_that_is_contradicted_is_never_paid_or_failed_again() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let (id, to) = world.pay_somebody().await;
    let job = world.work_until(id, "confirming").await;
    let hash = job.tx_hash.unwrap();
    world.jobs.record_verdict(&settled(id, hash)).await.unwrap();
    let undone = contradicted(id, Some(hash), "undone beyond the depth");
    world.jobs.record_verdict(&undone).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "parked");
    assert!(world.jobs.retry(id).await.is_err());
    assert!(world.jobs.cancel(id, "give up".to_owned()).await.is_err());
    world.worker().tick().await.unwrap();
    assert_eq!(payments_to(&world.anvil, &to).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_another_system_is_watched_and_never_signed_for() {
    let world = World::new(Mining::Instant).await;
    world.hot_wallet(0).await;
    let imported = ImportedJob {
        withdrawal: types::WithdrawalId::new(),
        chain: bsc(),
        asset: "BNB".parse().unwrap(),
        amount: ether(1),
        destination: crate::world::fresh_address(),
        from: KEYS[0].1.to_owned(),
        tx_hash: TxHash::from([3; 32]),
        created_at: Utc::now(),
    };
    let id = world.jobs.import(&imported).await.unwrap();
    assert_eq!(world.jobs.import(&imported).await.unwrap(), id, "a replay is the same job");
    let other = ImportedJob { tx_hash: TxHash::from([4; 32]), ..imported.clone() };
    assert!(matches!(world.jobs.import(&other).await, Err(JobError::OtherPayload { field: "tx_hash" })));
    assert_eq!(world.messages("confirmation.PutWatch").await.len(), 1);
    let reverted = reverted(id, TxHash::from([3; 32]), false);
    world.jobs.record_verdict(&reverted).await.unwrap();
    assert_eq!(world.job(id).await.0.state.name(), "failed", "nothing may be signed for it");
    assert_eq!(world.signer.requests(), 0);
}
