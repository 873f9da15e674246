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

use super::{Layer, Next, Req, Res, call::Call, trace::name};
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

/// What is counted of one method. Looked up once: to find a metric by its labels costs more than to count.
struct Meters {
    service: &'static str,
    method: &'static str,
    streaming: bool,
    in_flight: Gauge,
    by_code: [OnceLock<Answered>; CODES],
}

struct Answered {
    requests: Counter,
    /// `None` for streams.
    duration: Option<Histogram>,
}

impl Meters {
    fn of(call: Call) -> Self {
        let (service, method) = call.labels();
        Self {
            service,
            method,
            streaming: call.method.is_some_and(|method| method.server_streaming),
            in_flight: ::metrics::gauge!(IN_FLIGHT, "service" => service, "method" => method),
            by_code: [const { OnceLock::new() }; CODES],
        }
    }

    fn answered(&self, code: Code) -> Option<&Answered> {
        let slot = self.by_code.get(usize::try_from(i32::from(code)).ok()?)?;
        Some(slot.get_or_init(|| {
            let labels = [("service", self.service), ("method", self.method), ("code", name(code))];
            Answered {
                requests: ::metrics::counter!(REQUESTS, &labels),
                duration: (!self.streaming).then(|| ::metrics::histogram!(DURATION, &labels)),
            }
        }))
    }
}

/// Made after the recorder is installed, or it would count into nothing.
pub(crate) struct Metrics {
    /// By the number of the method; the last is for calls of no known method.
    meters: Box<[OnceLock<Arc<Meters>>]>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self { meters: (0..=method::all().len()).map(|_| OnceLock::new()).collect() }
    }

    fn of(&self, call: Call) -> Arc<Meters> {
        let number = call.method.map_or(self.meters.len() - 1, |method| method.number);
        let meters = || Arc::new(Meters::of(call));
        self.meters.get(number).map_or_else(meters, |slot| Arc::clone(slot.get_or_init(meters)))
    }
}

impl Layer for Metrics {
    async fn handle<N: Next>(&self, call: Call, request: Req, next: &N) -> Res {
        if !call.grpc {
            let started = Instant::now();
            let response = next.run(call, request).await;
            let status = response.status().as_str().to_owned();
            ::metrics::counter!(HTTP_REQUESTS, "status" => status).increment(1);
            ::metrics::histogram!(HTTP_DURATION).record(started.elapsed().as_secs_f64());
            return response;
        }
        let tally = Tally::new(self.of(call));
        let response = next.run(call, request).await;
        match code_in(response.headers()) {
            Some(code) => tally.end(code),
            None if tally.meters.streaming => {
                return response.map(|body| Body::new(OnEnd::new(body, move |code| tally.end(code))));
            }
            None => tally.end(Code::Ok),
        }
        response
    }
}

/// One request being counted; dropped early, the caller went away.
struct Tally {
    meters: Arc<Meters>,
    started: Instant,
    ended: bool,
}

impl Tally {
    fn new(meters: Arc<Meters>) -> Self {
        meters.in_flight.increment(1);
        Self { meters, started: Instant::now(), ended: false }
    }

    fn end(mut self, code: Code) {
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        self.ended = true;
        self.meters.in_flight.decrement(1);
        let Some(answered) = self.meters.answered(code) else { return };
        answered.requests.increment(1);
        if let Some(duration) = &answered.duration {
            duration.record(self.started.elapsed().as_secs_f64());
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
