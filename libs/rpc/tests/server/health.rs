//! Health, readiness, reflection and metrics, as probes see them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use rpc::AuthConfig;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use crate::fake::{self, Running, SERVICE, until};

async fn status(running: &Running, name: &str) -> Result<ServingStatus, Code> {
    let mut client = HealthClient::new(rpc::connect_lazy(&rpc::ClientConfig::new(running.url())).unwrap());
    let request = HealthCheckRequest { service: name.to_owned() };
    client.check(request).await.map(|reply| reply.get_ref().status()).map_err(|status| status.code())
}

async fn becomes(running: &Running, name: &str, wanted: ServingStatus) {
    until(&format!("{name} is {wanted:?}"), async || status(running, name).await == Ok(wanted)).await;
}

#[tokio::test]
async fn health_needs_no_key_and_knows_every_name() {
    let running = fake::start_with(fake::config(), AuthConfig::default(), |s| {
        s.check("database", true, async || Ok::<_, String>(()))
    })
    .await;
    for name in ["", SERVICE, "database"] {
        becomes(&running, name, ServingStatus::Serving).await;
    }
    assert_eq!(status(&running, "nonsense").await, Err(Code::NotFound));
}

#[tokio::test]
async fn strangers_cannot_pile_up_streams_and_probes_are_answered_all_the_same() {
    let running = fake::start_with(fake::config(), AuthConfig::default(), |server| server).await;
    becomes(&running, "", ServingStatus::Serving).await;
    let channel = rpc::connect_lazy(&rpc::ClientConfig::new(running.url())).unwrap();
    let client = HealthClient::new(channel);
    let watch = async || client.clone().watch(HealthCheckRequest::default()).await;
    let mut watchers = Vec::new();
    for _ in 0..256 {
        watchers.push(watch().await.unwrap());
    }
    assert_eq!(watch().await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(status(&running, "").await, Ok(ServingStatus::Serving));
    watchers.pop();
    until("a place is free again", async || watch().await.is_ok()).await;
}

#[tokio::test]
async fn a_failing_critical_check_takes_the_server_out_and_it_recovers_by_itself() {
    let up = Arc::new(AtomicBool::new(true));
    let probe = Arc::clone(&up);
    let running = fake::start_with(fake::config(), AuthConfig::default(), |server| {
        server
            .check("database", true, move || {
                let up = probe.load(Ordering::SeqCst);
                async move { if up { Ok(()) } else { Err("connection refused") } }
            })
            .check("chain/bsc", true, async || Ok::<_, String>(()))
    })
    .await;
    becomes(&running, SERVICE, ServingStatus::Serving).await;
    up.store(false, Ordering::SeqCst);
    becomes(&running, SERVICE, ServingStatus::NotServing).await;
    becomes(&running, "", ServingStatus::NotServing).await;
    assert_eq!(status(&running, "database").await, Ok(ServingStatus::NotServing));
    assert_eq!(status(&running, "chain/bsc").await, Ok(ServingStatus::Serving));
    let (code, body) = running.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("connection refused") && body.contains(r#""status":"failing""#), "{body}");
    // Alive all the while: a restart would not bring the database back.
    assert_eq!(running.get("/livez").await.0, 200);
    up.store(true, Ordering::SeqCst);
    becomes(&running, SERVICE, ServingStatus::Serving).await;
    assert_eq!(running.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_failing_check_that_is_not_critical_is_told_and_changes_nothing_else() {
    let running = fake::start_with(fake::config(), AuthConfig::default(), |s| {
        s.check("signer", false, async || Err::<(), _>("sealed"))
    })
    .await;
    becomes(&running, "signer", ServingStatus::NotServing).await;
    assert_eq!(status(&running, SERVICE).await, Ok(ServingStatus::Serving));
}

#[tokio::test]
async fn a_check_that_hangs_or_panics_has_failed() {
    let mut config = fake::config();
    config.health.timeout_ms = 20;
    let running = fake::start_with(config, AuthConfig::default(), |server| {
        server.check("hangs", true, std::future::pending::<Result<(), String>>).check(
            "panics",
            false,
            async || -> Result<(), String> { panic!("a bug in the check") },
        )
    })
    .await;
    until("both failures are reported", async || {
        let (code, body) = running.get("/readyz").await;
        code == 503 && body.contains("no answer within 20 ms") && body.contains("panicked")
    })
    .await;
}

#[tokio::test]
async fn metrics_and_plain_http_share_the_port() {
    let routes = axum::Router::new().route("/fees", axum::routing::get(async || "[]"));
    let running = fake::start_with(fake::config(), AuthConfig::default(), |server| server.http(routes)).await;
    running.client().list_workers(proto::workercontrol::v1::ListWorkersRequest {}).await.unwrap();
    let (code, text) = running.get("/metrics").await;
    assert_eq!(code, 200);
    let counted = r#"bursar_rpc_server_requests_total{service="bursar.workercontrol.v1.WorkerService",method="ListWorkers",code="OK"}"#;
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("bursar_rpc_server_duration_seconds_bucket{"), "{text}");
    assert!(text.contains("process_resident_memory_bytes "), "{text}");
    assert_eq!(running.get("/fees").await, (200, "[]".to_owned()));
    assert_eq!(running.get("/nothing").await.0, 404);
}

#[tokio::test]
async fn each_answer_is_counted_once_by_method_and_code() {
    use proto::workercontrol::v1::GetOrchestratorRequest;

    // A method that no other test calls: all of them count into one process.
    let running = fake::start(fake::config()).await;
    let mut client = running.client();
    for _ in 0..3 {
        client.get_orchestrator(GetOrchestratorRequest {}).await.unwrap();
    }
    let stranger = rpc::ClientConfig::new(running.url());
    let refused = running.client_with(stranger).get_orchestrator(GetOrchestratorRequest {}).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let text = running.get("/metrics").await.1;
    let labels = r#"service="bursar.workercontrol.v1.WorkerService",method="GetOrchestrator""#;
    for line in [
        format!(r#"bursar_rpc_server_requests_total{{{labels},code="OK"}} 3"#),
        format!(r#"bursar_rpc_server_requests_total{{{labels},code="UNAUTHENTICATED"}} 1"#),
        format!(r#"bursar_rpc_server_duration_seconds_count{{{labels},code="OK"}} 3"#),
        format!("bursar_rpc_server_in_flight{{{labels}}} 0"),
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn reflection_lists_what_is_served_and_describes_it() {
    let running = fake::start(fake::config()).await;
    let client = rpc::connect_lazy(&rpc::ClientConfig::new(running.url())).unwrap();
    let mut new = v1::server_reflection_client::ServerReflectionClient::new(client.clone());
    let list = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let symbol = v1::server_reflection_request::MessageRequest::FileContainingSymbol(SERVICE.to_owned());
    let requests = [list, symbol]
        .map(|message| v1::ServerReflectionRequest { host: String::new(), message_request: Some(message) });
    let mut replies = new.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let listed = replies.message().await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(listed) = listed else {
        panic!("{listed:?}")
    };
    let mut names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    names.sort();
    assert_eq!(names, [SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]);
    let described = replies.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(
        matches!(described, v1::server_reflection_response::MessageResponse::FileDescriptorResponse(_)),
        "{described:?}"
    );

    let mut old = v1alpha::server_reflection_client::ServerReflectionClient::new(client);
    let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut replies = old.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
    assert!(replies.message().await.unwrap().is_some());
}

#[tokio::test]
async fn members_of_a_family_come_and_go_by_themselves() {
    let known = Arc::new(std::sync::Mutex::new(Ok::<_, String>(vec!["bsc".to_owned()])));
    let looks = Arc::new(AtomicU64::new(0));
    let (names, looked) = (Arc::clone(&known), Arc::clone(&looks));
    let running = fake::start_with(fake::config(), AuthConfig::default(), |server| {
        server.check_each(
            "chain",
            false,
            move || {
                looked.fetch_add(1, Ordering::SeqCst);
                let names = names.lock().unwrap().clone();
                Box::pin(async move { names })
            },
            |name| {
                Box::pin(async move {
                    match name.as_str() {
                        "tron" => Err("no node answers".to_owned()),
                        "slow" => std::future::pending().await,
                        _ => Ok(()),
                    }
                })
            },
        )
    })
    .await;
    becomes(&running, "chain/bsc", ServingStatus::Serving).await;
    assert_eq!(status(&running, "chain/tron").await, Err(Code::NotFound));
    // Added while it runs; one that hangs holds up no other.
    *known.lock().unwrap() =
        Ok(vec!["bsc".to_owned(), "tron".to_owned(), "slow".to_owned(), "eth".to_owned()]);
    becomes(&running, "chain/tron", ServingStatus::NotServing).await;
    becomes(&running, "chain/eth", ServingStatus::Serving).await;
    assert_eq!(status(&running, "").await, Ok(ServingStatus::Serving), "not critical");
    let (_, body) = running.get("/readyz").await;
    assert!(body.contains("no node answers"), "{body}");
    // Nobody can say: those known stay.
    *known.lock().unwrap() = Err("the database is away".to_owned());
    let before = looks.load(Ordering::SeqCst);
    until("a whole look without names", async || looks.load(Ordering::SeqCst) >= before + 2).await;
    assert_eq!(status(&running, "chain/eth").await, Ok(ServingStatus::Serving));
    // Taken out: the name is gone, and comes back as a new one.
    *known.lock().unwrap() = Ok(vec!["eth".to_owned()]);
    until("it is gone", async || status(&running, "chain/bsc").await == Err(Code::NotFound)).await;
    assert!(!running.get("/readyz").await.1.contains("chain/tron"));
    *known.lock().unwrap() = Ok(vec!["bsc".to_owned()]);
    becomes(&running, "chain/bsc", ServingStatus::Serving).await;
}
