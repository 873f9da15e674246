//! Counting requests and how long they take, by method and code.
//!
//! Outside everything that refuses, so that shed and unauthenticated calls are counted too. A stream's length says nothing
//! about speed, so streams are counted and gauged but stay out of the latency histogram.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use ::metrics::{Counter, Gauge, Histogram};
use tonic::{Code, body::Body};

use super::{Layer, Next, Req, Res, target::Target, trace::name};
use crate::{
    body::{OnEnd, code_in},
    method,
};

const REQUESTS: &str = "bursar_rpc_server_requests_total";
const DURATION: &str = "bursar_rpc_server_duration_seconds";
const IN_FLIGHT: &str = "bursar_rpc_server_in_flight";
const HTTP_REQUESTS: &str = "bursar_http_server_requests_total";
const HTTP_DURATION: &str = "bursar_http_server_duration_seconds";

/// Texts for `# HELP`, once per process.
pub(crate) fn describe() {
    ::metrics::describe_counter!(REQUESTS, "gRPC requests answered, by method and code.");
    ::metrics::describe_histogram!(DURATION, "Time to answer unary gRPC requests, by method and code.");
    ::metrics::describe_gauge!(IN_FLIGHT, "gRPC requests and streams that are not finished.");
    ::metrics::describe_counter!(HTTP_REQUESTS, "Plain HTTP requests answered, by status.");
    ::metrics::describe_histogram!(HTTP_DURATION, "Time to answer plain HTTP requests.");
}

/// Codes of gRPC, 0 to 16.
const CODES: usize = 17;

/// The metrics of one method. They are looked up once, because finding a metric by its labels costs more than counting.
struct MethodMetrics {
    service: &'static str,
    method: &'static str,
    streaming: bool,
    in_flight: Gauge,
    by_code: [OnceLock<CodeMetrics>; CODES],
}

struct CodeMetrics {
    requests: Counter,
    /// `None` for streams.
    duration: Option<Histogram>,
}

impl MethodMetrics {
    fn of(target: Target) -> Self {
        let (service, method) = target.labels();
        Self {
            service,
            method,
            streaming: target.method.is_some_and(|method| method.server_streaming),
            in_flight: ::metrics::gauge!(IN_FLIGHT, "service" => service, "method" => method),
            by_code: [const { OnceLock::new() }; CODES],
        }
    }

    fn of_code(&self, code: Code) -> Option<&CodeMetrics> {
        let slot = self.by_code.get(usize::try_from(i32::from(code)).ok()?)?;
        Some(slot.get_or_init(|| {
            let labels = [("service", self.service), ("method", self.method), ("code", name(code))];
            CodeMetrics {
                requests: ::metrics::counter!(REQUESTS, &labels),
                duration: (!self.streaming).then(|| ::metrics::histogram!(DURATION, &labels)),
            }
        }))
    }
}

/// Must be created after the recorder is installed, or everything it counts is lost.
pub(crate) struct Metrics {
    /// By the number of the method; the last is for calls of no known method.
    methods: Box<[OnceLock<Arc<MethodMetrics>>]>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self { methods: (0..=method::all().len()).map(|_| OnceLock::new()).collect() }
    }

    fn of(&self, target: Target) -> Arc<MethodMetrics> {
        let number = target.method.map_or(self.methods.len() - 1, |method| method.number);
        let create = || Arc::new(MethodMetrics::of(target));
        self.methods.get(number).map_or_else(create, |slot| Arc::clone(slot.get_or_init(create)))
    }
}

impl Layer for Metrics {
    async fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> Res {
        if !target.grpc {
            let started = Instant::now();
            let response = next.run(target, request).await;
            let status = response.status().as_str().to_owned();
            ::metrics::counter!(HTTP_REQUESTS, "status" => status).increment(1);
            ::metrics::histogram!(HTTP_DURATION).record(started.elapsed().as_secs_f64());
            return response;
        }
        let recording = Recording::new(self.of(target));
        let response = next.run(target, request).await;
        match code_in(response.headers()) {
            Some(code) => recording.end(code),
            None if recording.method.streaming => {
                return response.map(|body| Body::new(OnEnd::new(body, move |code| recording.end(code))));
            }
            None => recording.end(Code::Ok),
        }
        response
    }
}

/// One request being counted. If it is dropped before its end, the caller went away.
struct Recording {
    method: Arc<MethodMetrics>,
    started: Instant,
    ended: bool,
}

impl Recording {
    fn new(method: Arc<MethodMetrics>) -> Self {
        method.in_flight.increment(1);
        Self { method, started: Instant::now(), ended: false }
    }

    fn end(mut self, code: Code) {
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        self.ended = true;
        self.method.in_flight.decrement(1);
        let Some(by_code) = self.method.of_code(code) else { return };
        by_code.requests.increment(1);
        if let Some(duration) = &by_code.duration {
            duration.record(self.started.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.ended {
            self.record(Code::Cancelled);
        }
    }
}
