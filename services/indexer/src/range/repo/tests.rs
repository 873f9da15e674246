use super::*;
use crate::range::{Advance, Ledger, Status};
use crate::source::testing::deposits;
use crate::store::testing::store;

const LONG: std::time::Duration = std::time::Duration::from_secs(30);

fn owner(worker: &str, lease_ms: u64) -> Owner {
    Owner { worker: worker.to_owned(), lease_ms, max_attempts: 10 }
}

async fn claim(ranges: &RangeRepo, lease_ms: u64) -> Job {
    match ranges.claim_next("deposits", &owner("first", lease_ms), 10, 100).await.unwrap() {
        ClaimOutcome::Range(job) => *job,
        other => panic!("{other:?}"),
    }
}

fn boundary(address_version: i64) -> Boundary {
    let (from_hash, to_hash) = ("a".to_owned(), "b".to_owned());
    Boundary {
        from_hash,
        to_hash,
        from_time: 1,
        to_time: 2,
        count: 3,
        address_version,
        ..Boundary::default()
    }
}

#[tokio::test]
async fn only_the_worker_that_has_a_range_can_shorten_it() {
    let (store, source) = (store().await, deposits());
    let ranges = RangeRepo::new(store);
    ranges.seed(&source).await.unwrap();
    let lost = claim(&ranges, 0).await;
    assert_eq!((lost.from, lost.to), (0, 9));
    let held = testkit::wait_for_value("the lease to end", LONG, || async {
        ranges.claim_again("deposits", &owner("second", 60_000), 100).await.unwrap()
    })
    .await;
    assert!(!ranges.shorten(&lost, 4).await.unwrap());
    assert_eq!(ranges.job("deposits", 5).await.unwrap(), None, "a range that was not shortened has no rest");
    assert_eq!(ranges.job("deposits", 0).await.unwrap().map(|job| job.to), Some(9));

    assert!(ranges.shorten(&held, 4).await.unwrap());
    let rest = ranges.job("deposits", 5).await.unwrap().unwrap();
    assert_eq!((rest.to, rest.status), (9, Status::Pending));
    assert!(rest.tried_before(), "an attempt at the whole may have stored some of it");
    assert_eq!(ranges.job("deposits", 0).await.unwrap().map(|job| job.to), Some(4));
    // The reply may be lost; repeating the call gives the same result.
    assert!(ranges.shorten(&held, 4).await.unwrap());
    assert_eq!(claim(&ranges, 60_000).await.from, 10, "the cursor is behind both parts");
}

#[tokio::test]
async fn a_range_above_the_head_waits_until_the_head_is_there() {
    let (store, source) = (store().await, deposits());
    let ranges = RangeRepo::new(store);
    ranges.seed(&source).await.unwrap();
    let below = claim(&ranges, 60_000).await;
    let above = claim(&ranges, 60_000).await;
    for job in [&below, &above] {
        let release =
            Release { error: "behind".to_owned(), pause_ms: 0, counts: false, parked: false, exact: false };
        assert!(ranges.release(job, &release).await.unwrap());
    }
    let second = owner("second", 60_000);
    let claimed = ranges.claim_again("deposits", &second, above.from - 1).await.unwrap();
    assert_eq!(claimed.map(|job| job.from), Some(below.from));
    assert_eq!(ranges.claim_again("deposits", &second, above.from - 1).await.unwrap(), None);
    let claimed = ranges.claim_again("deposits", &second, above.from).await.unwrap();
    assert_eq!(claimed.map(|job| job.from), Some(above.from));
}

#[tokio::test]
async fn the_run_passes_no_range_that_was_read_before_an_address_was_added() {
    let (store, source) = (store().await, deposits());
    let (ranges, ledger) = (RangeRepo::new(store.clone()), Ledger::new(store.clone()));
    ranges.seed(&source).await.unwrap();
    let job = claim(&ranges, 60_000).await;
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.complete_in(&mut tx, &job, &boundary(0)).await.unwrap());
    tx.commit().await.unwrap();
    // A worker has read the ledger and is about to move the run when addresses are added.
    let stale = ranges.cursor("deposits").await.unwrap().unwrap();
    let call = ranges.begin_adding("deposits").await.unwrap();
    assert_eq!(ranges.end_adding("deposits", call).await.unwrap(), Some(0));
    assert!(!ranges.move_run(&stale, 10, Some("b".to_owned()), 3).await.unwrap());
    // A worker that reads the ledger now finds a range to be read again.
    assert_eq!(ledger.advance(&source).await.unwrap(), Advance::Unmoved);
    let again = ranges.claim_again("deposits", &owner("second", 60_000), 100).await.unwrap().unwrap();
    assert_eq!((again.from, again.exact), (0, true));
    let version = ranges.cursor("deposits").await.unwrap().unwrap().address_version;
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.complete_in(&mut tx, &again, &boundary(version)).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(ledger.advance(&source).await.unwrap(), Advance::To(10));
}

#[tokio::test]
async fn what_is_recorded_of_a_range_is_not_recorded_of_the_one_reopened_in_its_place() {
    let (store, source) = (store().await, deposits());
    let ranges = RangeRepo::new(store.clone());
    ranges.seed(&source).await.unwrap();
    let job = claim(&ranges, 60_000).await;
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.complete_in(&mut tx, &job, &boundary(0)).await.unwrap());
    tx.commit().await.unwrap();
    let jobs = ranges.jobs_from("deposits", 0, 10).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.reopen_in(&mut tx, &jobs[0]).await.unwrap());
    tx.commit().await.unwrap();
    assert!(!ranges.record_events_before(&[(jobs[0].clone(), 0)]).await.unwrap());
    assert_eq!(ranges.job("deposits", 0).await.unwrap().unwrap().before, None);
}
