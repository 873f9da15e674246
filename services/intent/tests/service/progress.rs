//! Reports of progress: late, twice, out of order, contradictory.

use chrono::{TimeDelta, Utc};
use futures::future::join_all;
use proto::intent::v1 as pb;
use proto::intent::v1::record_progress_request::Progress;
use tonic::Code;

use crate::support::{
    HASH, OTHER_HASH, TOKEN, blocked, completed, create, entry, failed, fields, queued, reason, stack,
};

fn names(transitions: &[pb::Transition]) -> Vec<&'static str> {
    transitions
        .iter()
        .map(|entry| entry.to().as_str_name().trim_start_matches("WITHDRAWAL_STATUS_"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_goes_its_way_and_replays_change_nothing() {
    let stack = stack().await;
    let withdrawal = stack.approved("order-1").await;
    let now = Utc::now();
    for progress in [queued(), queued(), blocked("no hot wallet"), blocked("no hot wallet")] {
        stack.report(&withdrawal.id, now, progress).await.unwrap();
    }
    let seen = stack.get(&withdrawal.id).await;
    assert_eq!(
        (seen.status(), seen.blocked_reason.as_str()),
        (pb::WithdrawalStatus::Queued, "no hot wallet")
    );
    let unblocked = Progress::Unblocked(pb::Unblocked {});
    stack.report(&withdrawal.id, now + TimeDelta::seconds(1), unblocked).await.unwrap();
    assert_eq!(stack.get(&withdrawal.id).await.blocked_reason, "");
    join_all((0..10).map(|_| stack.report(&withdrawal.id, now, completed(HASH)))).await.into_iter().for_each(
        |result| {
            result.unwrap();
        },
    );
    let paid = stack.get(&withdrawal.id).await;
    assert_eq!(paid.status(), pb::WithdrawalStatus::Completed);
    assert_eq!((paid.final_tx_hash.as_str(), paid.final_block), (HASH, 77));
    assert!(paid.finished_at.is_some() && paid.queued_at.is_some());
    // What comes late is no news.
    stack.report(&withdrawal.id, now, queued()).await.unwrap();
    stack.report(&withdrawal.id, now + TimeDelta::seconds(9), blocked("late")).await.unwrap();
    let history = stack.transitions(&withdrawal.id).await;
    let steps = ["PENDING", "PENDING", "PENDING", "APPROVED", "QUEUED", "QUEUED", "QUEUED", "COMPLETED"];
    assert_eq!(names(&history), steps);
    assert_eq!(history.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert_eq!(stack.get(&withdrawal.id).await, paid);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_overtakes_the_queue_records_both_steps() {
    let stack = stack().await;
    let paid = stack.approved("paid").await;
    stack.report(&paid.id, Utc::now(), completed(HASH)).await.unwrap();
    stack.report(&paid.id, Utc::now(), queued()).await.unwrap();
    assert_eq!(names(&stack.transitions(&paid.id).await)[3..], ["APPROVED", "QUEUED", "COMPLETED"]);
    let lost = stack.approved("lost").await;
    stack.report(&lost.id, Utc::now(), failed()).await.unwrap();
    let lost = stack.get(&lost.id).await;
    assert_eq!((lost.status(), lost.failure_reason.as_str()), (pb::WithdrawalStatus::Failed, "gave up"));
    assert_eq!(names(&stack.transitions(&lost.id).await)[3..], ["APPROVED", "QUEUED", "FAILED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_failed_after_it_was_paid_nor_paid_twice() {
    let stack = stack().await;
    let paid = stack.approved("paid").await;
    stack.report(&paid.id, Utc::now(), completed(HASH)).await.unwrap();
    for contradiction in [failed(), completed(OTHER_HASH)] {
        let refused = stack.report(&paid.id, Utc::now(), contradiction).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::FailedPrecondition, "ILLEGAL_TRANSITION")
        );
    }
    assert_eq!(stack.get(&paid.id).await.final_tx_hash, HASH);
    let lost = stack.approved("lost").await;
    stack.report(&lost.id, Utc::now(), failed()).await.unwrap();
    assert!(stack.report(&lost.id, Utc::now(), completed(HASH)).await.is_err());
    let pending = stack.create(create("pending")).await.unwrap();
    for early in [queued(), completed(HASH), failed(), blocked("x")] {
        assert!(stack.report(&pending.id, Utc::now(), early).await.is_err());
    }
    assert_eq!(stack.get(&pending.id).await.status(), pb::WithdrawalStatus::Pending);
    assert!(telemetry::metrics::render().contains("bursar_intent_contradictions_total"));
    // The table refuses it too.
    let sql = "UPDATE withdrawal_requests SET status = 'failed', failure_reason = 'x', final_tx_hash = NULL, \
               final_block = NULL WHERE status = 'completed'";
    let error = sqlx::query(sql).execute(&stack.pool).await.unwrap_err();
    assert_eq!(db::constraint(&error), Some("withdrawal_requests_edge_known"));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_must_name_a_known_withdrawal_and_make_sense() {
    let stack = stack().await;
    let unknown = types::WithdrawalId::new().to_string();
    assert_eq!(stack.report(&unknown, Utc::now(), queued()).await.unwrap_err().code(), Code::NotFound);
    let request = pb::RecordProgressRequest { withdrawal_id: "x".to_owned(), at: None, progress: None };
    let refused = stack.progress_as("confirmation").record_progress(request).await.unwrap_err();
    assert_eq!(fields(&refused), ["withdrawal_id", "progress"]);
    let request =
        pb::RecordProgressRequest { withdrawal_id: unknown, at: None, progress: Some(completed("0x12")) };
    let refused = stack.progress_as("confirmation").record_progress(request.clone()).await.unwrap_err();
    assert_eq!(fields(&refused), ["completed.tx_hash"]);
    assert_eq!(
        stack.progress_as("ops").record_progress(request).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_catalogue_entry_changes_nothing() {
    let stack = stack().await;
    let mut newer = entry("bsc", "USDT", 18, TOKEN);
    (newer.enabled, newer.revision) = (false, 5);
    stack.put_entry(newer).await;
    for revision in [4, 5] {
        let mut older = entry("bsc", "USDT", 18, TOKEN);
        older.revision = revision;
        stack.put_entry(older).await;
    }
    assert_eq!(fields(&stack.create(create("order-1")).await.unwrap_err()), ["asset"]);
    let bad =
        pb::CatalogueEntry { address_format: "btc".into(), decimals: 99, ..pb::CatalogueEntry::default() };
    let request = pb::PutCatalogueEntryRequest { entry: Some(bad) };
    let refused = stack.progress_as("execution").put_catalogue_entry(request).await.unwrap_err();
    assert_eq!(fields(&refused).len(), 5, "{refused}");
}
