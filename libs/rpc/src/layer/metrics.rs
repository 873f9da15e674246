//! Counting requests and how long they take, by method and code.
//!
//! Outside everything that refuses, so that shed and unauthenticated calls are counted too. A stream's length says nothing
//! about speed, so streams are counted and gauged but stay out of the latency histogram.

use std::time::Instant;

use tonic::{Code, body::Body};

use super::{
    Inner, Middleware, Req, Res,
    call::{Call, call_of},
    pass,
    trace::name,
};
use crate::body::{OnEnd, code_in};

const REQUESTS: &str = "bursar_rpc_server_requests_total";
const DURATION: &str = "bursar_rpc_server_duration_seconds";
const IN_FLIGHT: &str = "bursar_rpc_server_in_flight";
const HTTP_REQUESTS: &str = "bursar_http_server_requests_total";
const HTTP_DURATION: &str = "bursar_http_server_duration_seconds";

/// Texts for `# HELP`, once per process.
pub(crate) fn describe() {
    metrics::describe_counter!(REQUESTS, "gRPC requests answered, by method and code.");
    metrics::describe_histogram!(DURATION, "Time to answer unary gRPC requests, by method and code.");
    metrics::describe_gauge!(IN_FLIGHT, "gRPC requests and streams that are not finished.");
    metrics::describe_counter!(HTTP_REQUESTS, "Plain HTTP requests answered, by status.");
    metrics::describe_histogram!(HTTP_DURATION, "Time to answer plain HTTP requests.");
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Metrics;

impl Middleware for Metrics {
    async fn handle<S: Inner>(self, request: Req, inner: S) -> Res {
        let call = call_of(&request);
        if !call.grpc {
            let started = Instant::now();
            let response = pass(inner, request).await;
            let status = response.status().as_str().to_owned();
            metrics::counter!(HTTP_REQUESTS, "status" => status).increment(1);
            metrics::histogram!(HTTP_DURATION).record(started.elapsed().as_secs_f64());
            return response;
        }
        let tally = Tally::new(call);
        let response = pass(inner, request).await;
        match code_in(response.headers()) {
            Some(code) => tally.end(code),
            None if tally.streaming() => {
                return response.map(|body| Body::new(OnEnd::new(body, move |code| tally.end(code))));
            }
            None => tally.end(Code::Ok),
        }
        response
    }
}

/// One request being counted; dropped early, the caller went away.
struct Tally {
    call: Call,
    started: Instant,
    ended: bool,
}

impl Tally {
    fn new(call: Call) -> Self {
        let (service, method) = call.labels();
        metrics::gauge!(IN_FLIGHT, "service" => service, "method" => method).increment(1);
        Self { call, started: Instant::now(), ended: false }
    }

    fn streaming(&self) -> bool {
        self.call.method.is_some_and(|method| method.server_streaming)
    }

    fn end(mut self, code: Code) {
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        self.ended = true;
        let (service, method) = self.call.labels();
        metrics::gauge!(IN_FLIGHT, "service" => service, "method" => method).decrement(1);
        metrics::counter!(REQUESTS, "service" => service, "method" => method, "code" => name(code))
            .increment(1);
        if !self.streaming() {
            metrics::histogram!(DURATION, "service" => service, "method" => method, "code" => name(code))
                .record(self.started.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.ended {
            self.record(Code::Cancelled);
        }
    }
}
