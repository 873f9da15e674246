//! Bounds: slots, streams, time, size, panics.

use std::{sync::atomic::Ordering, time::Duration};

use proto::workercontrol::v1::{
    GetWorkerRequest, ListWorkersRequest, RestartWorkerRequest, WatchWorkersRequest,
};
use rpc::{
    client::RetryConfig,
    error::{reason, reason_of, retry_after},
};
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use crate::fake::{self, Act, until};

#[tokio::test]
async fn beyond_the_limit_calls_are_refused_at_once_and_told_when_to_come_back() {
    let mut config = fake::config();
    config.limits.concurrency = 1;
    let running = fake::start(config).await;
    running.script.then(Act::Hang);
    let mut holder = running.client();
    let held = tokio::spawn(async move { holder.restart_worker(RestartWorkerRequest::default()).await });
    until("the slot is taken", async || running.script.calls() == 1).await;

    let refused = running.client().restart_worker(RestartWorkerRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::OVERLOADED));
    assert!(retry_after(&refused).is_some());
    // An overloaded server still answers its probes, or it would be restarted under load.
    assert_eq!(running.get("/readyz").await.0, 200);

    running.script.released.cancel();
    held.await.unwrap().unwrap();
    running.client().restart_worker(RestartWorkerRequest::default()).await.unwrap();
}

#[tokio::test]
async fn an_open_stream_holds_no_request_slot_but_streams_have_a_limit_of_their_own() {
    let mut config = fake::config();
    config.limits.concurrency = 1;
    config.limits.streams = 1;
    let running = fake::start(config).await;
    let mut client = running.client();
    let mut stream = client.watch_workers(WatchWorkersRequest {}).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    client.list_workers(ListWorkersRequest {}).await.unwrap();
    let refused = client.watch_workers(WatchWorkersRequest {}).await.unwrap_err();
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::TOO_MANY_STREAMS));
    drop(stream);
    until("the first stream is gone", async || running.script.open_streams.load(Ordering::SeqCst) == 0).await;
    until("a new stream is admitted", async || client.watch_workers(WatchWorkersRequest {}).await.is_ok())
        .await;
}

#[tokio::test]
async fn the_server_limit_ends_a_call_that_hangs() {
    let mut config = fake::config();
    config.limits.timeout_ms = 30;
    let running = fake::start(config).await;
    running.script.then(Act::Hang);
    let refused = running.client().restart_worker(RestartWorkerRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::DEADLINE_EXCEEDED));
}

#[tokio::test]
async fn a_stream_outlives_the_time_limit() {
    let mut config = fake::config();
    config.limits.timeout_ms = 30;
    let running = fake::start(config).await;
    let mut client = running.client();
    let mut stream = client.watch_workers(WatchWorkersRequest {}).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    // Longer than the limit by construction: this very call runs into it.
    running.script.then(Act::Hang);
    client.restart_worker(RestartWorkerRequest::default()).await.unwrap_err();
    running.shutdown.cancel();
    assert!(stream.message().await.unwrap().is_some(), "the stream was cut off");
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn the_callers_deadline_travels_and_holds() {
    let running = fake::start(fake::config()).await;
    let mut config = running.config(&running.operator);
    // Long enough for a busy machine to connect and ask within it.
    config.timeout_ms = 1_000;
    config.retry = RetryConfig { max_attempts: 1, ..RetryConfig::default() };
    running.script.then(Act::Hang);
    let late = running.client_with(config).list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let told = running.script.deadline.lock().unwrap().clone().unwrap();
    assert!(told.ends_with('m') && told.trim_end_matches('m').parse::<u64>().unwrap() <= 1_000, "{told}");

    let mut request = Request::new(GetWorkerRequest::default());
    request.set_timeout(Duration::from_millis(20));
    running.script.then(Act::Hang);
    let late = running.client().get_worker(request).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_panic_is_one_callers_internal_error() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client();
    running.script.then(Act::Panic);
    let failed = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::Internal, "internal error"));
    assert!(failed.get_details_error_info().unwrap().metadata.contains_key("error_id"));
    client.list_workers(ListWorkersRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused() {
    let mut config = fake::config();
    config.limits.max_message_bytes = 2048;
    let running = fake::start(config).await;
    let mut client = running.client();
    client.get_worker(GetWorkerRequest { id: "x".repeat(2000) }).await.unwrap();
    let refused = client.get_worker(GetWorkerRequest { id: "x".repeat(4000) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::MESSAGE_TOO_LARGE));
}

#[tokio::test]
async fn bytes_that_are_no_request_are_the_callers_mistake() {
    let running = fake::start(fake::config()).await;
    let client = reqwest::Client::new();
    let url = format!("{}/{}/GetWorker", running.url(), fake::SERVICE);
    let truncated_field = [0, 0, 0, 0, 2, 0x0a, 0x7f];
    let truncated_message = [0, 0, 0, 0, 9, 0x0a];
    let bad_flag = [7, 0, 0, 0, 0];
    for bytes in [&truncated_field[..], &truncated_message, &bad_flag, &[]] {
        let request = client
            .post(&url)
            .header("content-type", "application/grpc")
            .header("x-api-key", running.operator.expose())
            .body(bytes.to_vec());
        let response = request.send().await.unwrap();
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::InvalidArgument, "{bytes:?}: {status}");
        assert_eq!(reason_of(&status).as_deref(), Some(reason::INVALID_ARGUMENT));
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "request");
    }
    assert_eq!(running.script.calls(), 0);
}

#[tokio::test]
async fn an_internal_error_of_a_handler_stays_internal() {
    let running = fake::start(fake::config()).await;
    for fault in ["bug", "a dependency failed to decode Protobuf message"] {
        running.script.then(Act::Refuse(tonic::Status::internal(fault)));
        let failed = running.client().restart_worker(RestartWorkerRequest::default()).await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (Code::Internal, fault));
    }
}
