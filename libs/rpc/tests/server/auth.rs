//! Who gets in: keys, roles, and every way around them.

use proto::workercontrol::v1::{ListWorkersRequest, worker_service_client::WorkerServiceClient};
use rpc::{
    AuthConfig, ClientConfig, Role, Secret,
    error::{reason, reason_of},
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::fake::{self, SERVICE, until};

#[tokio::test]
async fn without_a_key_nobody_gets_in() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client_with(ClientConfig::new(running.url()));
    let refused = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::NO_CREDENTIALS));
    assert_eq!(running.script.calls(), 0);
}

#[tokio::test]
async fn no_content_type_leads_around_the_key() {
    let running = fake::start(fake::config()).await;
    let empty_message = [0_u8; 5];
    for content_type in ["text/plain", "application/json", "application/octet-stream", ""] {
        for method in ["ListWorkers", "NotInTheContract"] {
            let request = reqwest::Client::new()
                .post(format!("{}/{SERVICE}/{method}", running.url()))
                .header("content-type", content_type)
                .body(empty_message.to_vec());
            let answer = request.send().await.unwrap();
            let code = answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
            let refused = answer.status() == 403 || matches!(code.as_deref(), Some("7" | "16"));
            assert!(refused, "{content_type:?} {method}: {answer:?}");
        }
    }
    assert_eq!(running.script.calls(), 0);
}

#[tokio::test]
async fn an_unknown_key_is_unauthenticated() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client_with(running.config(&Secret::new("bursar_guess")));
    let refused = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(reason_of(&refused).as_deref(), Some(reason::BAD_CREDENTIALS));
}

#[tokio::test]
async fn the_wrong_role_is_denied_and_told_which_would_do() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client_with(running.config(&running.requester));
    let refused = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let info = refused.get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason::ROLE_REQUIRED, "bursar"));
    assert_eq!(info.metadata["roles"], "operator, auditor");
    assert_eq!(running.script.calls(), 0);
}

#[tokio::test]
async fn the_handler_learns_who_calls() {
    let running = fake::start(fake::config()).await;
    running.client().list_workers(ListWorkersRequest {}).await.unwrap();
    assert_eq!(running.script.caller.lock().unwrap().as_deref(), Some("ops"));
}

#[tokio::test]
async fn a_reload_of_keys_reaches_open_connections() {
    let running = fake::start(fake::config()).await;
    let mut client = running.client();
    client.list_workers(ListWorkersRequest {}).await.unwrap();
    running.auth.replace(&AuthConfig::default()).unwrap();
    let refused = client.list_workers(ListWorkersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_service_or_method_that_is_not_served_is_unimplemented() {
    let running = fake::start(fake::config()).await;
    let client = rpc::connect_lazy(&running.config(&running.operator)).unwrap();
    let mut other = proto::intent::v1::intent_service_client::IntentServiceClient::new(client);
    let refused = other.get_withdrawal(proto::intent::v1::GetWithdrawalRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn guarded_http_routes_ask_for_a_key_with_the_role() {
    let routes = axum::Router::new().route("/hook", axum::routing::get(async || "in"));
    let running = fake::start_with(fake::config(), AuthConfig::default(), |server| {
        server.http_for([Role::Operator], routes)
    })
    .await;
    let url = format!("{}/hook", running.url());
    let client = reqwest::Client::new();
    let get = async |key: Option<&Secret>| {
        let request = client.get(&url);
        let request = match key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.expose())),
            None => request,
        };
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(get(None).await, 401);
    assert_eq!(get(Some(&running.requester)).await, 403);
    assert_eq!(get(Some(&running.operator)).await, 200);
}

#[tokio::test]
async fn refusals_are_counted() {
    let running = fake::start(fake::config()).await;
    let mut client: WorkerServiceClient<_> = running.client_with(ClientConfig::new(running.url()));
    client.get_worker(proto::workercontrol::v1::GetWorkerRequest::default()).await.unwrap_err();
    until("the refusal is counted", async || {
        running.get("/metrics").await.1.contains(r#"method="GetWorker",code="UNAUTHENTICATED"} "#)
    })
    .await;
}
