//! A MongoDB that is restarted, loses replies, or is away.

use devstack::{Lifetime, Mongo, MongoOptions, Tools};
use mongodb::bson::{Document, doc};
use testkit::{FaultProxy, wait_for};

use crate::kit::{FEES, LONG, Settings, World};

pub(crate) async fn server(dir: &std::path::Path, port: Option<u16>) -> Mongo {
    let options = MongoOptions { dir: dir.to_owned(), port, log: None, lifetime: Lifetime::Owned };
    Mongo::start(&Tools::locate(), &options).await.unwrap()
}

#[tokio::test]
async fn a_restart_of_the_database_loses_nothing_and_moves_no_cursor() {
    let world = World::new().await;
    world.history(60).await;
    let dir = testkit::scratch_dir();
    let mut mongo = server(dir.path(), None).await;
    let port = mongo.port();
    let database = testkit::mongo().await;
    let settings = Settings {
        url: mongo.url(),
        batch: 3,
        concurrency: 3,
        extra: "verify = \"bloom\"".to_owned(),
        ..world.settings(&database)
    };
    let indexing = settings.launch().await;
    for _ in 0..2 {
        mongo.process().kill().await.unwrap();
        world.history(6).await;
        mongo = server(dir.path(), Some(port)).await;
        world.history(3).await;
    }
    indexing.caught_up(&world).await;
    let client = mongodb::Client::with_uri_str(mongo.url()).await.unwrap();
    let rows = client.database(database.name()).collection::<Document>("feeEvents");
    assert_eq!(rows.count_documents(doc! {}).await.unwrap(), world.facts().await.len() as u64);
    indexing.stop().await;
    mongo.stop().await.unwrap();
}

#[tokio::test]
async fn replies_of_the_database_that_are_lost_double_nothing() {
    let (world, database) = World::with_history(40).await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let settings = Settings { url, batch: 4, lease_ms: 1_500, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let cursors = database.database().await.collection::<Document>("lastBlock");
    for _ in 0..6 {
        let before = cursors.find_one(doc! { "_id": FEES }).await.unwrap();
        proxy.lose_replies().await;
        world.history(2).await;
        proxy.pass().await;
        world.history(2).await;
        wait_for("the cursor to move on", LONG, || async {
            cursors.find_one(doc! { "_id": FEES }).await.unwrap() != before
        })
        .await;
    }
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn without_mongodb_the_cursor_does_not_move_and_reading_goes_on_afterwards() {
    let (world, database) = World::with_history(20).await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let indexing = Settings { url, lease_ms: 1_000, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    let cursors = database.database().await.collection::<Document>("lastBlock");
    let cursor = || async { cursors.find_one(doc! { "_id": FEES }).await.unwrap().unwrap() };
    proxy.refuse().await;
    let (next, done) = {
        let cursor = cursor().await;
        (cursor.get_i64("nextBlock").unwrap(), cursor.get_i64("doneBefore").unwrap())
    };
    world.history(10).await;
    let (status, _) = indexing.get("/fees").await;
    assert_eq!(status, 500);
    let now = cursor().await;
    assert_eq!((now.get_i64("nextBlock").unwrap(), now.get_i64("doneBefore").unwrap()), (next, done));
    proxy.pass().await;
    indexing.finish(&world, &database).await;
}
