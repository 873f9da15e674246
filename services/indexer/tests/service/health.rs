//! Start, health, and a database that goes away and comes back.

use indexer::Indexer;
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use testkit::{FaultProxy, wait_for};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::kit::{LONG, Settings};

async fn health(client: &mut HealthClient<Channel>, name: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: name.to_owned() };
    client.check(request).await.map_or(ServingStatus::Unknown, |a| a.into_inner().status())
}

#[tokio::test]
async fn health_follows_the_database_down_and_up_again() {
    let database = testkit::mongo().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let indexing = Settings::new(&database.url_at(&proxy.address()), database.name()).launch().await;
    let channel = Channel::from_shared(indexing.running.url()).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);

    let name = "bursar.indexer.v1.IndexerService";
    let serving = |name: &'static str, status| {
        let client = client.clone();
        wait_for("health to follow the database", LONG, move || {
            let mut client = client.clone();
            async move { health(&mut client, name).await == status }
        })
    };
    serving(name, ServingStatus::Serving).await;
    proxy.refuse().await;
    serving(name, ServingStatus::NotServing).await;
    serving("database", ServingStatus::NotServing).await;
    let (status, body) = indexing.get("/fees").await;
    assert_eq!((status, body.as_str()), (500, r#"{"error":"Internal Server Error"}"#));
    proxy.pass().await;
    serving(name, ServingStatus::Serving).await;
    assert_eq!(health(&mut client, "").await, ServingStatus::Serving);
    indexing.stop().await;
}

#[tokio::test]
async fn a_database_that_is_down_at_start_is_one_clear_refusal() {
    let free = FaultProxy::tcp("127.0.0.1:1").await;
    free.refuse().await;
    let url = format!("mongodb://{}/?directConnection=true", free.address());
    let refused = service::launch::<Indexer>(&Settings::new(&url, "indexer").text()).await;
    let refused = refused.expect_err("nothing to start on");
    assert!(refused.message().contains("MongoDB does not answer"), "{}", refused.message());
}

#[tokio::test]
async fn a_database_of_the_fee_collector_is_refused_and_left_alone() {
    let database = testkit::mongo().await;
    let rows = database.database().await.collection::<Document>("feeEvents");
    let key = doc! { "transactionHash": 1, "logIndex": 1 };
    let unique = IndexOptions::builder().unique(true).build();
    rows.create_index(IndexModel::builder().keys(key).options(unique).build()).await.unwrap();
    let refused = || async {
        let refused =
            service::launch::<Indexer>(&Settings::new(database.url(), database.name()).text()).await;
        refused.expect_err("another program's database").message()
    };
    let said = refused().await;
    assert!(said.contains("feeEvents") && said.contains("a database of its own"), "{said}");
    rows.drop_indexes().await.unwrap();
    rows.insert_one(doc! { "transactionHash": "0x01", "logIndex": 1 }).await.unwrap();
    let said = refused().await;
    assert!(said.contains("feeEvents"), "{said}");
    assert_eq!(database.database().await.list_collection_names().await.unwrap(), ["feeEvents"]);
}
