//! With a collector configured, spans reach it; the context that travels leads back to the same trace.

use std::{sync::Arc, time::Duration};

use telemetry::{TelemetryConfig, propagation};
use tokio::sync::Mutex;
use tracing::Instrument as _;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_are_exported_and_a_stored_context_continues_the_trace() {
    let received = Arc::new(Mutex::new(Vec::<u8>::new()));
    let sink = Arc::clone(&received);
    let collector = axum::Router::new().route(
        EXPORT,
        axum::routing::post(async move |body: axum::body::Bytes| {
            sink.lock().await.extend_from_slice(&body);
            [("content-type", "application/grpc"), ("grpc-status", "0")]
        }),
    );
    let routes = tonic::service::Routes::from(collector);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(routes.prepare(), incoming));

    let mut config = TelemetryConfig::new("export-test");
    config.filter = "off".into();
    config.otlp_endpoint = Some(format!("http://{address}"));
    let telemetry = telemetry::init(&config).unwrap();
    telemetry::init(&config).expect("a second call is harmless");

    let first = tracing::info_span!("first half");
    let stored = async { propagation::current() }.instrument(first.clone()).await;
    let trace = stored.trace_id().expect("a running span has a trace");
    drop(first);
    // As a row would keep it, and as another process would find it.
    let text = serde_json::to_string(&stored).unwrap();
    let found: telemetry::TraceContext = serde_json::from_str(&text).unwrap();
    let second = tracing::info_span!("second half");
    propagation::attach(&found, &second);
    let continued = async { propagation::current() }.instrument(second).await;
    assert_eq!(continued.trace_id(), Some(trace));
    assert_ne!(continued, stored, "the second half is a span of its own");

    let flush = tokio::task::spawn_blocking(move || drop(telemetry));
    tokio::time::timeout(Duration::from_secs(10), flush).await.unwrap().unwrap();
    let received = received.lock().await;
    let has = |text: &str| received.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(
        has("export-test") && has("first half") && has("second half"),
        "the collector got {} bytes",
        received.len()
    );
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let mut config = TelemetryConfig::new("x");
    config.filter = "a=b=c".into();
    assert_eq!(config.validate().unwrap_err().to_string(), "`a=b=c` is not a log filter");
    config.filter = "info".into();
    config.otlp_endpoint = Some("collector:4317".into());
    assert!(config.validate().unwrap_err().to_string().contains("collector:4317"));
}

#[test]
fn metrics_render_with_the_processs_own_numbers() {
    telemetry::metrics::install();
    telemetry::metrics::install();
    let text = telemetry::metrics::render();
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect(name);
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{name} is {value}");
    }
}
