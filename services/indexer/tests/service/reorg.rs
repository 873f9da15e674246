//! Reorganisations of 1 to 20 blocks, as stored and as a watcher sees them.

use std::collections::BTreeMap;

use proto::indexer::v1 as pb;
use proto::indexer::v1::watch_events_response::Change;
use rand::Rng as _;

use crate::kill::Fleet;
use crate::kit::{FEES, Indexing, LONG, Settings, World};

/// What a watcher has received: events by block and hash. Retractions remove whole blocks.
#[derive(Default)]
pub(crate) struct WatcherState {
    blocks: BTreeMap<(u64, String), Vec<u32>>,
    last: Option<(u64, u32)>,
    pub(crate) retractions: u64,
    pub(crate) cursor: String,
}

impl WatcherState {
    pub(crate) fn take(&mut self, response: pb::WatchEventsResponse) {
        self.cursor = response.cursor;
        match response.change.expect("a change") {
            Change::Event(event) => {
                let place = (event.block_number, event.log_index);
                assert!(self.last.is_none_or(|last| last < place), "{:?} then {place:?}", self.last);
                self.last = Some(place);
                self.blocks.entry((event.block_number, event.block_hash)).or_default().push(event.log_index);
            }
            Change::Retraction(gone) => {
                self.retractions += 1;
                let known = self.blocks.remove(&(gone.block_number, gone.block_hash.clone()));
                assert!(known.is_some(), "block {} was never sent", gone.block_number);
                self.last = self
                    .blocks
                    .iter()
                    .next_back()
                    .map(|((number, _), logs)| (*number, *logs.last().unwrap()));
            }
        }
    }

    /// Every event that holds now.
    pub(crate) fn facts(&self) -> Vec<(u64, String, u64)> {
        let one = |((number, hash), logs): (&(u64, String), &Vec<u32>)| {
            logs.iter().map(|log| (*number, hash.clone(), u64::from(*log))).collect::<Vec<_>>()
        };
        self.blocks.iter().flat_map(one).collect()
    }
}

/// Watches until the received events equal the chain's.
pub(crate) async fn follow(world: &World, indexing: &Indexing, watcher: &mut WatcherState) {
    let expected: Vec<_> =
        world.facts().await.into_iter().map(|(number, hash, _, log, _)| (number, hash, log)).collect();
    let request = pb::WatchEventsRequest {
        source: FEES.to_owned(),
        cursor: watcher.cursor.clone(),
        from_block: u64::from(watcher.cursor.is_empty()),
    };
    let mut stream = indexing.client().watch_events(request).await.unwrap().into_inner();
    while watcher.facts() != expected {
        let next = tokio::time::timeout(LONG, stream.message()).await;
        let next = next.unwrap_or_else(|_| {
            panic!("the watcher got no further than {} of {}", watcher.facts().len(), expected.len())
        });
        watcher.take(next.unwrap().expect("the stream goes on"));
    }
}

async fn settled(world: &World, indexing: &Indexing, database: &testkit::MongoDatabase) {
    // Completeness alone proves nothing: the old branch was complete too.
    world.stored_in_full(&database.database().await).await;
    indexing.caught_up(world).await;
    world.assert_stored(database).await;
}

#[tokio::test]
async fn a_reorganisation_of_any_depth_is_undone_read_again_and_told() {
    let (world, database) = World::with_history(40).await;
    let indexing = world.settings(&database).launch().await;
    indexing.caught_up(&world).await;
    let mut watcher = WatcherState::default();
    follow(&world, &indexing, &mut watcher).await;
    for depth in [1, 2, 3, 5, 8, 13, 20] {
        let before = watcher.retractions;
        world.reorganise(depth, &[(2, 0), (1, depth - 1)]).await;
        settled(&world, &indexing, &database).await;
        follow(&world, &indexing, &mut watcher).await;
        assert!(depth < 2 || watcher.retractions > before, "depth {depth} took nothing back");
        world.history(4).await;
        settled(&world, &indexing, &database).await;
        follow(&world, &indexing, &mut watcher).await;
    }
    let progress = indexing.caught_up(&world).await;
    assert_eq!(progress.events, world.facts().await.len() as u64);
    // A new watcher sees the same as one that watched all the time.
    let mut fresh = WatcherState::default();
    follow(&world, &indexing, &mut fresh).await;
    assert_eq!((fresh.facts(), fresh.retractions), (watcher.facts(), 0));
    indexing.stop().await;
}

#[tokio::test]
async fn reorganisations_while_history_is_read_leave_no_trace() {
    let (world, database) = World::with_history(30).await;
    let settings = Settings { batch: 5, concurrency: 3, ..world.settings(&database) };
    let (one, two) = tokio::join!(settings.launch(), settings.launch());
    for round in 0..12u64 {
        let depth = rand::rng().random_range(1..=20);
        world.reorganise(depth, &[(round % 4 + 1, 0), (1, depth / 2)]).await;
        world.history(round % 5).await;
    }
    settled(&world, &one, &database).await;
    let progress = two.complete_to(FEES, world.head().await).await;
    assert_eq!(progress.events, world.facts().await.len() as u64);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_reorganisation_before_the_last_one_is_read_again_is_told_too() {
    let (world, database) = World::with_history(30).await;
    // One range over all: both forks lie within it.
    let settings = Settings { batch: 50, concurrency: 1, lease_ms: 1_000, ..world.settings(&database) };
    let indexing = settings.launch().await;
    indexing.caught_up(&world).await;
    let mut watcher = WatcherState::default();
    follow(&world, &indexing, &mut watcher).await;
    indexing.stop().await;
    world.reorganise(3, &[(2, 0)]).await;
    // It undoes, claims the range to read again, and dies then.
    let mut dying = Fleet::new(settings.clone()).worker(Some("indexer.after_claim"));
    assert!(!dying.end().await.success(), "nothing was claimed");
    world.reorganise(8, &[(3, 0), (1, 4)]).await;
    let indexing = settings.launch().await;
    settled(&world, &indexing, &database).await;
    follow(&world, &indexing, &mut watcher).await;
    assert!(watcher.retractions <= 8, "{} blocks taken back, eight were undone", watcher.retractions);
    let progress = indexing.caught_up(&world).await;
    assert_eq!(progress.events, world.facts().await.len() as u64);
    indexing.stop().await;
}

#[tokio::test]
async fn a_reorganisation_deeper_than_finality_is_found_too() {
    let (world, database) = World::with_history(40).await;
    let settings = Settings { finality: 5, ..world.settings(&database) };
    let indexing = settings.launch().await;
    indexing.caught_up(&world).await;
    world.reorganise(18, &[(3, 0), (2, 9)]).await;
    settled(&world, &indexing, &database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_reorganisation_while_nobody_looks_is_found_at_the_next_start() {
    let (world, database) = World::with_history(30).await;
    let indexing = world.settings(&database).launch().await;
    indexing.caught_up(&world).await;
    let mut watcher = WatcherState::default();
    follow(&world, &indexing, &mut watcher).await;
    indexing.stop().await;
    world.reorganise(10, &[(5, 3)]).await;
    world.history(3).await;
    let indexing = world.settings(&database).launch().await;
    settled(&world, &indexing, &database).await;
    follow(&world, &indexing, &mut watcher).await;
    assert!(watcher.retractions > 0);
    indexing.stop().await;
}
