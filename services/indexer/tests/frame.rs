//! The indexer as a process sees it: start, health, a database that goes away and comes back.

use std::time::Duration;

use indexer::Indexer;
use proto::indexer::v1 as pb;
use proto::indexer::v1::indexer_service_client::IndexerServiceClient;
use rpc::{ClientConfig, Secret, connect_lazy};
use testkit::{FaultProxy, wait_for};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const KEY: &str = "bk_test";

fn config(url: &str, database: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[server.health]\ninterval_ms = 50\ntimeout_ms = 1000\n\
         [[auth.keys]]\nname = \"operator\"\nsha256 = \"{}\"\nroles = [\"operator\"]\n\
         [mongo]\nurl = \"{url}\"\ndatabase = \"{database}\"\ntimeout_ms = 800\n",
        rpc::auth::hash_key(KEY)
    )
}

async fn health(client: &mut HealthClient<Channel>, name: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: name.to_owned() };
    client.check(request).await.map_or(ServingStatus::Unknown, |a| a.into_inner().status())
}

#[tokio::test]
async fn health_follows_the_database_down_and_up_again() {
    let database = testkit::mongo().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    // A direct connection: the replica set would tell its members' own addresses, past the proxy.
    let url = format!("mongodb://{}/?directConnection=true", proxy.address());
    let running =
        service::launch::<Indexer>(&config(&url, database.name())).await.expect("the indexer starts");
    let channel = Channel::from_shared(running.url()).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);

    let name = "bursar.indexer.v1.IndexerService";
    let serving = |name: &'static str, status| {
        let client = client.clone();
        wait_for("health to follow the database", Duration::from_secs(20), move || {
            let mut client = client.clone();
            async move { health(&mut client, name).await == status }
        })
    };
    serving(name, ServingStatus::Serving).await;
    proxy.refuse().await;
    serving(name, ServingStatus::NotServing).await;
    serving("database", ServingStatus::NotServing).await;
    proxy.pass().await;
    serving(name, ServingStatus::Serving).await;
    assert_eq!(health(&mut client, "").await, ServingStatus::Serving);
    running.stop().await.expect("a clean stop");
}

#[tokio::test]
async fn a_database_that_is_down_at_start_is_one_clear_refusal() {
    let free = testkit::FaultProxy::tcp("127.0.0.1:1").await;
    free.refuse().await;
    let url = format!("mongodb://{}/?directConnection=true", free.address());
    let refused =
        service::launch::<Indexer>(&config(&url, "indexer")).await.expect_err("nothing to start on");
    assert!(refused.message().contains("MongoDB does not answer"), "{}", refused.message());
}

#[tokio::test]
async fn methods_to_come_say_so() {
    let database = testkit::mongo().await;
    let running = service::launch::<Indexer>(&config(database.url(), database.name()))
        .await
        .expect("the indexer starts");
    let client = ClientConfig::new(running.url()).with_key(Secret::new(KEY));
    let mut client = IndexerServiceClient::new(connect_lazy(&client).unwrap());
    let status = client.list_sources(pb::ListSourcesRequest {}).await.expect_err("not there yet");
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}
