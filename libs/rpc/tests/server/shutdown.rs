//! Draining: what is finished, what is told, what is dropped.

use std::time::Duration;

use proto::workercontrol::v1::{RestartWorkerRequest, WatchWorkersRequest};
use rpc::{Server, ServerConfig};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::fake::{self, Act, SERVICE, until};

#[tokio::test]
async fn draining_tells_watchers_finishes_calls_and_lets_nobody_in() {
    let running = fake::start(fake::config()).await;
    let mut health = HealthClient::new(rpc::connect_lazy(&rpc::ClientConfig::new(running.url())).unwrap());
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    running.script.then(Act::Hang);
    let mut client = running.client();
    let in_flight = tokio::spawn(async move { client.restart_worker(RestartWorkerRequest::default()).await });
    until("the call is in flight", async || running.script.calls() == 1).await;

    running.shutdown.cancel();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    // A probe that watches for ever must not hold up the shutdown: its stream ends.
    assert!(watch.message().await.is_err());
    until("new connections are refused", async || {
        tokio::net::TcpStream::connect(running.address).await.is_err()
    })
    .await;
    assert!(!running.served.is_finished(), "did not wait for the call in flight");

    running.script.released.cancel();
    in_flight.await.unwrap().expect("the call in flight was cut off");
    tokio::time::timeout(Duration::from_secs(5), running.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn streams_are_told_to_end() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client();
    let mut stream = client.watch_workers(WatchWorkersRequest {}).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    running.shutdown.cancel();
    assert!(stream.message().await.unwrap().is_some());
    assert!(stream.message().await.unwrap().is_none());
    tokio::time::timeout(Duration::from_secs(5), running.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_does_not_end_within_the_drain_limit_is_dropped() {
    let mut config = fake::config();
    config.limits.drain_ms = 30;
    let running = fake::start(config).await;
    running.script.then(Act::Hang);
    let mut client = running.client();
    let in_flight = tokio::spawn(async move { client.restart_worker(RestartWorkerRequest::default()).await });
    until("the call is in flight", async || running.script.calls() == 1).await;
    running.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), running.served).await.unwrap().unwrap();
    in_flight.await.unwrap().expect_err("the call was dropped");
}

#[tokio::test]
async fn with_notice_the_server_answers_on_while_not_serving() {
    let mut config = fake::config();
    config.limits.notice_ms = 60_000;
    let running = fake::start(config).await;
    assert_eq!(running.get("/readyz").await.0, 200);
    running.shutdown.cancel();
    until("readiness says draining", async || {
        let (code, body) = running.get("/readyz").await;
        code == 503 && body.contains("draining")
    })
    .await;
    running.client().restart_worker(RestartWorkerRequest::default()).await.unwrap();
    running.served.abort();
}

#[tokio::test]
async fn a_port_that_its_last_owner_is_about_to_leave_is_waited_for() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let mut binding = std::pin::pin!(Server::new(ServerConfig::new(listen)).bind());
    assert!(futures::poll!(binding.as_mut()).is_pending(), "somebody listens there");
    drop(taken);
    assert_eq!(binding.await.unwrap().local_addr(), listen);
}

#[tokio::test]
async fn a_port_in_use_is_said_plainly() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let error = Server::new(ServerConfig::new(listen)).bind().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {listen}: address already in use (server.listen)")
    );
}
