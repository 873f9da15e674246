//! The queue on a real PostgreSQL: order, leases, fencing, retries.

#![allow(clippy::unwrap_used, reason = "in the helpers too a panic is the failed test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::*;
use db::queue::NewJob;
use db::{Due, Queue, QueueError};
use types::Priority;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_claim_each_job_exactly_once() {
    const JOBS: usize = 1_000;
    let (base, queue) = queue_base().await;
    let pushed: BTreeSet<Uuid> = push_many(&base.pool, &queue, JOBS).await.into_iter().collect();
    let workers = (0..8u32).map(|n| {
        // Workers of different processes share nothing: each has a handle of its own.
        let (pool, queue) = (base.pool.clone(), Queue::new(queue.name()));
        tokio::spawn(async move {
            let mut claims = Vec::new();
            loop {
                let leases = queue.claim(&pool, &format!("worker-{n}"), 1 + n * 3, MINUTE).await.unwrap();
                if leases.is_empty() {
                    return claims;
                }
                let ended = queue.complete_many(&pool, &leases).await.unwrap();
                assert_eq!(ended.len(), leases.len());
                claims.extend(leases.into_iter().map(|lease| (lease.job_id, lease.token)));
            }
        })
    });
    let mut claims = Vec::new();
    for worker in workers {
        claims.extend(worker.await.unwrap());
    }
    let jobs: BTreeSet<Uuid> = claims.iter().map(|(job, _)| *job).collect();
    let tokens: BTreeSet<i64> = claims.iter().map(|(_, token)| *token).collect();
    assert_eq!(claims.len(), JOBS);
    assert_eq!(jobs, pushed);
    assert_eq!(tokens.len(), JOBS, "no token is given twice");
    assert_eq!(count(&base.pool, "SELECT count(*) FROM job_ready").await, 0);
    assert_eq!(count(&base.pool, "SELECT count(*) FROM job_lease").await, 0);
}

#[tokio::test]
async fn the_most_urgent_comes_first_and_then_the_longest_due() {
    let (base, queue) = queue_base().await;
    let mut expected = Vec::new();
    for priority in [Priority::Low, Priority::Urgent, Priority::Normal, Priority::High] {
        for _ in 0..2 {
            expected.push((priority, push(&base.pool, &queue, priority, Due::Now).await));
        }
    }
    expected.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let mut claimed = Vec::new();
    claimed.extend(queue.claim(&base.pool, "w", 3, MINUTE).await.unwrap());
    claimed.extend(queue.claim(&base.pool, "w", 3, MINUTE).await.unwrap());
    while let Some(lease) = claim_one(&base.pool, &queue, "w").await {
        claimed.push(lease);
    }
    let claimed: Vec<_> = claimed.into_iter().map(|lease| (lease.priority, lease.job_id)).collect();
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn a_job_is_not_claimed_before_it_is_due() {
    let (base, queue) = queue_base().await;
    let job = push(&base.pool, &queue, Priority::Urgent, Due::In(Duration::from_secs(3600))).await;
    assert!(claim_one(&base.pool, &queue, "w").await.is_none());
    let next = queue.next_due(&base.pool).await.unwrap().unwrap();
    assert!(next > Duration::from_secs(3500) && next <= Duration::from_secs(3601), "{next:?}");
    let depth = queue.depth(&base.pool).await.unwrap();
    assert_eq!((depth.ready_due, depth.ready_future, depth.oldest_due), (0, 1, None));

    // A second push brings it forward; the priority only ever rises.
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert!(!queue.push_in(&mut tx, job, Priority::Low, Due::Now).await.unwrap());
    tx.commit().await.unwrap();
    let lease = claim_one(&base.pool, &queue, "w").await.unwrap();
    assert_eq!((lease.job_id, lease.priority), (job, Priority::Urgent));
}

#[tokio::test]
async fn a_push_that_rolls_back_never_happened() {
    let (base, queue) = queue_base().await;
    let mut tx = db::begin(&base.pool).await.unwrap();
    queue.push_in(&mut tx, Uuid::now_v7(), Priority::Normal, Due::Now).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(claim_one(&base.pool, &queue, "w").await.is_none());
}

#[tokio::test]
async fn queues_do_not_see_each_others_jobs() {
    let (base, queue) = queue_base().await;
    let other = Queue::new("withdrawal/tron");
    let job = push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    // The same id in another queue is another job.
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert!(other.push_in(&mut tx, job, Priority::Normal, Due::Now).await.unwrap());
    tx.commit().await.unwrap();
    let lease = claim_one(&base.pool, &queue, "w").await.unwrap();
    assert!(claim_one(&base.pool, &queue, "w").await.is_none());
    assert!(matches!(
        other.complete_in(&mut base.pool.acquire().await.unwrap(), &lease).await,
        Err(QueueError::LeaseLost { .. })
    ));
    assert_eq!(claim_one(&base.pool, &other, "w").await.unwrap().job_id, job);
}

#[tokio::test]
async fn tokens_only_grow() {
    let (base, queue) = queue_base().await;
    push_many(&base.pool, &queue, 3).await;
    let mut last = 0;
    for round in 0..12 {
        let lease = claim_one(&base.pool, &queue, "w").await.unwrap();
        assert!(lease.token > last, "round {round}");
        last = lease.token;
        if round % 2 == 0 {
            // Ended and wanted again, in one transaction.
            let mut tx = db::begin(&base.pool).await.unwrap();
            queue.complete_in(&mut tx, &lease).await.unwrap();
            queue.push_in(&mut tx, lease.job_id, lease.priority, Due::Now).await.unwrap();
            tx.commit().await.unwrap();
        } else {
            expire(&base.pool, lease.job_id).await;
        }
    }
}

#[tokio::test]
async fn lapses_are_counted_and_an_end_starts_anew() {
    let (base, queue) = queue_base().await;
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    for lapses in 0..3 {
        let lease = claim_one(&base.pool, &queue, "w").await.unwrap();
        assert_eq!(lease.lapses, lapses);
        expire(&base.pool, lease.job_id).await;
    }
    let lease = claim_one(&base.pool, &queue, "w").await.unwrap();
    let mut tx = db::begin(&base.pool).await.unwrap();
    queue.complete_in(&mut tx, &lease).await.unwrap();
    // Twice in one transaction: the second finds no lease.
    assert!(matches!(queue.complete_in(&mut tx, &lease).await, Err(QueueError::LeaseLost { .. })));
    queue.push_in(&mut tx, lease.job_id, Priority::Normal, Due::Now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(claim_one(&base.pool, &queue, "w").await.unwrap().lapses, 0);
}

#[tokio::test]
async fn a_paused_owner_that_returns_is_refused_everything() {
    let (base, queue) = queue_base().await;
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    let paused = claim_one(&base.pool, &queue, "paused").await.unwrap();
    expire(&base.pool, paused.job_id).await;
    refused_everything(&base, &queue, &paused).await;
    let successor = claim_one(&base.pool, &queue, "successor").await.unwrap();
    assert!(successor.token > paused.token);
    refused_everything(&base, &queue, &paused).await;

    // And none of it disturbed the one who holds the job now.
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert_eq!(queue.guard_many_in(&mut tx, std::slice::from_ref(&successor)).await.unwrap().len(), 1);
    queue.complete_in(&mut tx, &successor).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&base.pool, "SELECT count(*) FROM job_ready").await, 0);
}

async fn refused_everything(base: &Base, queue: &Queue, lease: &db::Lease) {
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert!(matches!(queue.complete_in(&mut tx, lease).await, Err(QueueError::LeaseLost { .. })));
    assert!(queue.guard_many_in(&mut tx, std::slice::from_ref(lease)).await.unwrap().is_empty());
    tx.commit().await.unwrap();
    assert!(queue.extend_many(&base.pool, std::slice::from_ref(lease), MINUTE).await.unwrap().is_empty());
    assert!(queue.complete_many(&base.pool, std::slice::from_ref(lease)).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_owner_inside_its_guard_is_not_overtaken() {
    let (base, queue) = queue_base().await;
    push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    let lease = claim_one(&base.pool, &queue, "owner").await.unwrap();
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert_eq!(queue.guard_many_in(&mut tx, std::slice::from_ref(&lease)).await.unwrap().len(), 1);
    // The lease runs out inside the transaction that holds it: only that transaction can do this to the row.
    sqlx::query("UPDATE job_lease SET lease_until = clock_timestamp() - interval '1 s'")
        .execute(&mut *tx)
        .await
        .unwrap();
    // A claim with room to spare looks for leases that ran out.
    assert!(claim_one(&base.pool, &queue, "other").await.is_none());
    tx.commit().await.unwrap();
    testkit::wait_for_value("the lease to be taken back", LIMIT, || claim_one(&base.pool, &queue, "other"))
        .await;
}

#[tokio::test]
async fn an_extended_lease_outlives_its_first_term() {
    let (base, queue) = queue_base().await;
    let ids = push_many(&base.pool, &queue, 3).await;
    let leases = queue.claim(&base.pool, "w", 3, MINUTE).await.unwrap();
    expire(&base.pool, ids[1]).await;
    let held = queue.extend_many(&base.pool, &leases, MINUTE * 60).await.unwrap();
    let held_ids: Vec<Uuid> = held.iter().map(|lease| lease.job_id).collect();
    assert_eq!(held_ids, [ids[0], ids[2]]);
    assert!(held.iter().all(|lease| lease.lease_until > leases[0].lease_until));
    let ended: BTreeSet<Uuid> = queue.complete_many(&base.pool, &leases).await.unwrap().into_iter().collect();
    assert_eq!(ended, BTreeSet::from([ids[0], ids[2]]));
    let again = claim_one(&base.pool, &queue, "w").await.unwrap();
    assert_eq!(again.job_id, ids[1]);
}

#[tokio::test]
async fn a_job_pushed_while_leased_runs_again_when_the_lease_ends() {
    let (base, queue) = queue_base().await;
    let job = push(&base.pool, &queue, Priority::Normal, Due::Now).await;
    let first = claim_one(&base.pool, &queue, "w").await.unwrap();
    let mut tx = db::begin(&base.pool).await.unwrap();
    assert!(queue.push_in(&mut tx, job, Priority::High, Due::Now).await.unwrap());
    tx.commit().await.unwrap();
    assert!(claim_one(&base.pool, &queue, "other").await.is_none(), "never two owners");
    let mut tx = db::begin(&base.pool).await.unwrap();
    queue.complete_in(&mut tx, &first).await.unwrap();
    tx.commit().await.unwrap();
    let second = claim_one(&base.pool, &queue, "other").await.unwrap();
    assert_eq!((second.job_id, second.priority), (job, Priority::High));

    // The same with a lapse in place of completion: the two become one again.
    let mut tx = db::begin(&base.pool).await.unwrap();
    queue.push_in(&mut tx, job, Priority::Normal, Due::Now).await.unwrap();
    tx.commit().await.unwrap();
    expire(&base.pool, job).await;
    let third = claim_one(&base.pool, &queue, "third").await.unwrap();
    assert_eq!((third.job_id, third.lapses), (job, 1));
    assert_eq!(count(&base.pool, "SELECT count(*) FROM job_ready").await, 0);
}

#[tokio::test]
async fn depth_tells_due_future_leased_and_age() {
    let (base, queue) = queue_base().await;
    push_many(&base.pool, &queue, 4).await;
    push(&base.pool, &queue, Priority::Normal, Due::In(MINUTE)).await;
    let leases = queue.claim(&base.pool, "w", 2, MINUTE).await.unwrap();
    expire(&base.pool, leases[0].job_id).await;
    sqlx::query("UPDATE job_ready SET due_at = due_at - interval '1 hour' WHERE due_at < now()")
        .execute(&base.pool)
        .await
        .unwrap();
    let depth = queue.depth(&base.pool).await.unwrap();
    assert_eq!((depth.ready_due, depth.ready_future, depth.leased, depth.leases_expired), (2, 1, 1, 1));
    assert!(depth.oldest_due.unwrap() >= Duration::from_secs(3600));
}

/// Random operations by many workers at once, each checking that what it holds is held by it alone.
#[tokio::test(flavor = "multi_thread")]
async fn under_random_concurrent_operations_no_job_is_lost_or_held_twice() {
    const WORKERS: u64 = 6;
    const ROUNDS: usize = 60;
    let (base, queue) = queue_base().await;
    let workers = (0..WORKERS).map(|seed| {
        let (pool, queue) = (base.pool.clone(), Queue::new(queue.name()));
        tokio::spawn(async move {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let (mut pushed, mut done) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let fresh = random.below(4);
                let jobs: Vec<NewJob> = (0..fresh).map(|_| random.job()).collect();
                let mut tx = db::begin(&pool).await.unwrap();
                queue.push_many_in(&mut tx, &jobs).await.unwrap();
                if random.below(5) == 0 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                    pushed.extend(jobs.iter().map(|job| job.job_id));
                }
                let batch = 1 + u32::try_from(random.below(5)).unwrap();
                for lease in queue.claim(&pool, "w", batch, MINUTE).await.unwrap() {
                    let mut tx = db::begin(&pool).await.unwrap();
                    match random.below(5) {
                        0 => expire(&pool, lease.job_id).await,
                        1 => {
                            queue.complete_in(&mut tx, &lease).await.unwrap();
                            queue.push_in(&mut tx, lease.job_id, lease.priority, Due::Now).await.unwrap();
                        }
                        2 => {
                            let held =
                                queue.extend_many(&pool, std::slice::from_ref(&lease), MINUTE).await.unwrap();
                            assert_eq!(held.len(), 1);
                        }
                        _ => {
                            queue.guard_many_in(&mut tx, std::slice::from_ref(&lease)).await.unwrap();
                            queue.complete_in(&mut tx, &lease).await.unwrap();
                            done.push((lease.token, lease.job_id));
                        }
                    }
                    tx.commit().await.unwrap();
                }
            }
            (pushed, done)
        })
    });
    let (mut pushed, mut done) = (BTreeSet::new(), BTreeMap::new());
    for worker in workers {
        let (more, ended) = worker.await.unwrap();
        pushed.extend(more);
        for (token, job) in ended {
            assert!(done.insert(job, token).is_none(), "{job} ended twice");
        }
    }
    // What is left over is exactly what was not ended.
    sqlx::query("UPDATE job_lease SET lease_until = now() - interval '1 s'")
        .execute(&base.pool)
        .await
        .unwrap();
    let rest = Queue::new(queue.name());
    loop {
        let leases = rest.claim(&base.pool, "rest", 100, MINUTE).await.unwrap();
        for lease in &leases {
            assert!(
                done.insert(lease.job_id, lease.token).is_none(),
                "{} came back after its end",
                lease.job_id
            );
        }
        if leases.is_empty() {
            break;
        }
    }
    assert_eq!(done.into_keys().collect::<BTreeSet<_>>(), pushed);
}

/// A small generator, so that a failing run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn job(&mut self) -> NewJob {
        let rank = i16::try_from(self.below(4)).unwrap();
        NewJob { job_id: Uuid::now_v7(), priority: Priority::from_rank(rank).unwrap(), due: Due::Now }
    }
}
