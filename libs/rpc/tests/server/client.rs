//! The calling side: retries, deadlines, traces.

use std::time::Duration;

use proto::workercontrol::v1::{ListWorkersRequest, RestartWorkerRequest};
use rpc::{client::RetryConfig, error};
use tonic::{Code, Status};
use tracing::Instrument as _;

use crate::fake::{self, Act};

fn away() -> Act {
    Act::Refuse(error::unavailable(error::reason::DEPENDENCY_UNAVAILABLE, "away", Duration::from_millis(1)))
}

fn fast() -> RetryConfig {
    RetryConfig { max_attempts: 4, base_ms: 1, cap_ms: 5 }
}

#[tokio::test]
async fn a_safe_call_is_retried_until_it_is_answered() {
    let running = fake::start(fake::config()).await;
    let mut config = running.config(&running.operator);
    config.retry = fast();
    running.script.then(away());
    running.script.then(away());
    running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap();
    assert_eq!(running.script.calls(), 3);
}

#[tokio::test]
async fn a_call_that_is_not_safe_is_made_once() {
    let running = fake::start(fake::config()).await;
    let mut config = running.config(&running.operator);
    config.retry = fast();
    running.script.then(away());
    let failed =
        running.client_with(config).restart_worker(RestartWorkerRequest::default()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!(running.script.calls(), 1);
}

#[tokio::test]
async fn an_answer_is_not_asked_for_twice() {
    let running = fake::start(fake::config()).await;
    running.script.then(Act::Refuse(Status::failed_precondition("no")));
    running.client().list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(running.script.calls(), 1);
}

#[tokio::test]
async fn retries_end_with_the_attempts() {
    let running = fake::start(fake::config()).await;
    let mut config = running.config(&running.operator);
    config.retry = RetryConfig { max_attempts: 2, base_ms: 1, cap_ms: 1 };
    for _ in 0..5 {
        running.script.then(away());
    }
    let failed = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert_eq!(running.script.calls(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut config = rpc::ClientConfig::new(url.clone());
    config.retry = RetryConfig { max_attempts: 1, ..fast() };
    let client = rpc::connect_lazy(&config).unwrap();
    let mut client = proto::workercontrol::v1::worker_service_client::WorkerServiceClient::new(client);
    let failed = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert!(failed.message().contains(&url) && failed.message().contains("refused"), "{}", failed.message());
}

#[tokio::test]
async fn a_client_outlives_a_restart_of_its_server() {
    let first = fake::start(fake::config()).await;
    let mut config = first.config(&first.operator);
    config.retry = RetryConfig { max_attempts: 50, base_ms: 2, cap_ms: 20 };
    let mut client = first.client_with(config);
    client.list_workers(ListWorkersRequest {}).await.unwrap();
    let address = first.address;
    first.shutdown.cancel();
    first.served.await.unwrap();

    let mut again = fake::config();
    again.listen = address;
    let second = fake::start(again).await;
    second.auth.replace(&callers(&first.operator)).unwrap();
    client.list_workers(ListWorkersRequest {}).await.unwrap();
    assert_eq!(second.script.calls(), 1);
}

fn callers(key: &rpc::Secret) -> rpc::AuthConfig {
    let sha256 = rpc::auth::hash_key(key.expose());
    let keys = vec![rpc::auth::KeyConfig { name: "ops".into(), sha256, roles: vec![rpc::Role::Operator] }];
    rpc::AuthConfig { keys, certificates: Vec::new() }
}

#[tokio::test]
async fn the_handler_runs_in_the_callers_trace() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client();
    let span = tracing::info_span!("test caller");
    let trace = telemetry::propagation::of(&span).trace_id();
    assert!(trace.is_some(), "no trace id without an exporter");
    client.list_workers(ListWorkersRequest {}).instrument(span).await.unwrap();
    assert_eq!(*running.script.trace.lock().unwrap(), trace);
}
