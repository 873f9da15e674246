//! Load shedding: a bounded number of requests at a time; the rest are refused at once and told when to retry.
//!
//! A request keeps its slot until the handler has answered. For a unary call that is the whole call. A stream answers when it is
//! set up and may then live for hours: it gives its slot back at that point, or a few hundred watchers would shut everybody
//! out. Open streams count against a limit of their own until their last byte. Probes are answered whatever the load; their
//! streams, which need no key, have a small limit of their own, so that strangers cannot pile them up.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tonic::body::Body;

use super::{Layer, Next, Req, Res, refuse, target::Target};
use crate::{
    body::{self, OnEnd, code_in},
    error::{self, reason},
    server::Limits,
};

/// Short: a slot comes free as soon as any request ends, and clients add their own growing backoff.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Open streams of health and reflection together: more than any fleet of load balancers has.
const PUBLIC_STREAMS: usize = 256;
/// Length prefix and compression flag of a gRPC message.
const FRAME_BYTES: u64 = 5;

#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    requests: Semaphore,
    streams: Arc<Semaphore>,
    public_streams: Arc<Semaphore>,
    max_message_bytes: u64,
}

impl ConcurrencyLimit {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            requests: Semaphore::new(limits.concurrency),
            streams: Arc::new(Semaphore::new(limits.streams)),
            public_streams: Arc::new(Semaphore::new(PUBLIC_STREAMS)),
            max_message_bytes: limits.max_message_bytes,
        }
    }
}

impl Layer for ConcurrencyLimit {
    async fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> Res {
        let streaming = target.method.is_some_and(|method| method.server_streaming);
        if target.exempt && !streaming {
            return next.run(target, request).await;
        }
        if target.exempt {
            let Ok(stream) = Arc::clone(&self.public_streams).try_acquire_owned() else {
                return refuse_stream(target, "public_streams");
            };
            let response = next.run(target, request).await;
            return response.map(|body| Body::new(OnEnd::new(body, move |_| drop(stream))));
        }
        let Ok(slot) = self.requests.try_acquire() else {
            metrics::counter!("bursar_rpc_server_shed_total", "limit" => "requests").increment(1);
            let text = "the server has as many requests as it can handle";
            return refuse(target, error::resource_exhausted(reason::OVERLOADED, text, RETRY_AFTER));
        };
        let stream = if streaming {
            let Ok(stream) = Arc::clone(&self.streams).try_acquire_owned() else {
                return refuse_stream(target, "streams");
            };
            Some(stream)
        } else {
            None
        };
        // One message per request: its size can be bounded here. In a stream each message has the decoder's limit.
        let one_message = !target.method.is_some_and(|method| method.client_streaming);
        let limit = self.max_message_bytes.saturating_add(FRAME_BYTES);
        let request = if one_message { request.map(|body| body::limited(body, limit)) } else { request };
        let response = next.run(target, request).await;
        drop(slot);
        match stream {
            Some(stream) if code_in(response.headers()).is_none() => {
                response.map(|body| Body::new(OnEnd::new(body, move |_| drop(stream))))
            }
            _ => response,
        }
    }
}

fn refuse_stream(target: Target, limit: &'static str) -> Res {
    metrics::counter!("bursar_rpc_server_shed_total", "limit" => limit).increment(1);
    let text = "the server has as many open streams as it can handle";
    refuse(target, error::resource_exhausted(reason::TOO_MANY_STREAMS, text, RETRY_AFTER))
}
