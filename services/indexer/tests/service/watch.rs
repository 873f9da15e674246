//! Watching: resumable, in order, from a block, from now on.

use proto::indexer::v1 as pb;
use proto::indexer::v1::watch_events_response::Change;

use crate::kit::{FEES, LONG, World};
use crate::reorg::{WatcherState, follow};

#[tokio::test]
async fn a_watcher_can_leave_and_come_back_at_any_event() {
    let (world, database) = World::with_history(25).await;
    let indexing = world.settings(&database).launch().await;
    indexing.caught_up(&world).await;
    let mut watcher = WatcherState::default();
    // One event per visit: every cursor is used once.
    for _ in 0..20 {
        let request = pb::WatchEventsRequest {
            source: FEES.to_owned(),
            cursor: watcher.cursor.clone(),
            from_block: u64::from(watcher.cursor.is_empty()),
        };
        let mut stream = indexing.client().watch_events(request).await.unwrap().into_inner();
        watcher.take(stream.message().await.unwrap().unwrap());
    }
    follow(&world, &indexing, &mut watcher).await;
    assert_eq!(watcher.retractions, 0);
    indexing.stop().await;
}

#[tokio::test]
async fn from_now_on_means_from_now_on() {
    let (world, database) = World::with_history(10).await;
    let indexing = world.settings(&database).launch().await;
    let head = world.head().await;
    indexing.complete_to(FEES, head).await;
    let request = pb::WatchEventsRequest { source: FEES.to_owned(), ..Default::default() };
    let mut stream = indexing.client().watch_events(request).await.unwrap().into_inner();
    world.emit(2).await;
    for log in 0..2 {
        let next = tokio::time::timeout(LONG, stream.message()).await.unwrap().unwrap().unwrap();
        let Some(Change::Event(event)) = next.change else { panic!("an event") };
        assert_eq!((event.block_number, event.log_index), (head + 1, log));
        assert_eq!(event.name, "FeesCollected");
        let fields = event.parameters.unwrap().fields;
        let mut names: Vec<_> = fields.keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["_integrator", "_integratorFee", "_lifiFee", "_token"]);
    }
    indexing.stop().await;
}

#[tokio::test]
async fn a_cursor_of_another_source_or_no_source_is_refused() {
    let (world, database) = World::with_history(3).await;
    let indexing = world.settings(&database).launch().await;
    let watch = |source: &str, cursor: &str| {
        let request =
            pb::WatchEventsRequest { source: source.to_owned(), cursor: cursor.to_owned(), from_block: 0 };
        let mut client = indexing.client();
        async move { client.watch_events(request).await }
    };
    assert_eq!(watch("nope", "").await.unwrap_err().code(), tonic::Code::NotFound);
    let refused = watch(FEES, "AAAA").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().starts_with("cursor:"), "{refused}");
    indexing.stop().await;
}
