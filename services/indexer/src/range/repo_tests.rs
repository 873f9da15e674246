use super::super::{Advance, Ledger};
use super::*;
use crate::source::testing::deposits;
use crate::store::testing::store;

const LONG: std::time::Duration = std::time::Duration::from_secs(30);

fn owner(worker: &str, lease_ms: u64) -> Owner {
    Owner { worker: worker.to_owned(), lease_ms, max_attempts: 10 }
}

async fn claim(ranges: &RangeRepo, lease_ms: u64) -> Job {
    match ranges.claim_next("deposits", &owner("first", lease_ms), 10, 100).await.unwrap() {
        Claimed::Range(job) => *job,
        other => panic!("{other:?}"),
    }
}

fn boundary(address_version: i64) -> Boundary {
    Boundary {
        parent_hash: String::new(),
        from_hash: "a".to_owned(),
        to_hash: "b".to_owned(),
        from_time: 1,
        to_time: 2,
        count: 3,
        hashes: Vec::new(),
        address_version,
    }
}

#[tokio::test]
async fn only_who_holds_a_range_can_cut_it() {
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
    assert_eq!(ranges.job("deposits", 5).await.unwrap(), None, "a range that nobody cut has no rest");
    assert_eq!(ranges.job("deposits", 0).await.unwrap().map(|job| job.to), Some(9));

    assert!(ranges.shorten(&held, 4).await.unwrap());
    let rest = ranges.job("deposits", 5).await.unwrap().unwrap();
    assert_eq!((rest.to, rest.status), (9, super::super::Status::Pending));
    assert!(rest.tried_before(), "an attempt at the whole may have stored some of it");
    assert_eq!(ranges.job("deposits", 0).await.unwrap().map(|job| job.to), Some(4));
    // The answer may be lost: once more is the same.
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
        let back =
            GivenBack { error: "behind".to_owned(), pause_ms: 0, counts: false, parked: false, exact: false };
        assert!(ranges.give_back(job, &back).await.unwrap());
    }
    let second = owner("second", 60_000);
    let claimed = ranges.claim_again("deposits", &second, above.from - 1).await.unwrap();
    assert_eq!(claimed.map(|job| job.from), Some(below.from));
    assert_eq!(ranges.claim_again("deposits", &second, above.from - 1).await.unwrap(), None);
    let claimed = ranges.claim_again("deposits", &second, above.from).await.unwrap();
    assert_eq!(claimed.map(|job| job.from), Some(above.from));
}

#[tokio::test]
async fn the_run_passes_no_range_that_was_read_before_an_address_came() {
    let (store, source) = (store().await, deposits());
    let (ranges, ledger) = (RangeRepo::new(store.clone()), Ledger::new(store.clone()));
    ranges.seed(&source).await.unwrap();
    let job = claim(&ranges, 60_000).await;
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.complete_in(&mut tx, &job, &boundary(0)).await.unwrap());
    tx.commit().await.unwrap();
    // Somebody has looked at the ledger and is about to push the run when addresses come.
    let looked = ranges.cursor("deposits").await.unwrap().unwrap();
    let call = ranges.begin_adding("deposits").await.unwrap();
    assert_eq!(ranges.end_adding("deposits", call).await.unwrap(), Some(0));
    assert!(!ledger.push(&looked, 10, Some("b".to_owned()), 3).await.unwrap());
    // Who looks now finds a range to be read again.
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
async fn what_is_noted_of_a_range_is_not_noted_of_the_one_opened_in_its_place() {
    let (store, source) = (store().await, deposits());
    let ranges = RangeRepo::new(store.clone());
    ranges.seed(&source).await.unwrap();
    let job = claim(&ranges, 60_000).await;
    let mut tx = store.begin().await.unwrap();
    assert!(ranges.complete_in(&mut tx, &job, &boundary(0)).await.unwrap());
    tx.commit().await.unwrap();
    let cursor = ranges.cursor("deposits").await.unwrap().unwrap();
    let jobs = ranges.jobs_from("deposits", 0, 10).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(ranges.reopen_in(&mut tx, doc! { "_id": &job.id }).await.unwrap(), 1);
    tx.commit().await.unwrap();
    let notes = super::super::ledger::notes(&cursor, jobs);
    assert_eq!(notes.len(), 1);
    store.command(doc! { "update": "blockJobs", "updates": notes, "ordered": false }).await.unwrap();
    assert_eq!(ranges.job("deposits", 0).await.unwrap().unwrap().before, None);
}
