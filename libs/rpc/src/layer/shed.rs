//! A bounded number of requests at a time; the rest are refused at once with the advice to come back.
//!
//! A slot is held until the handler has answered. For a unary call that is the whole call. A stream answers when it is set
//! up and may then live for hours: it gives its slot back at that point, or a few hundred watchers would shut everybody out.
//! Open streams are bounded by a limit of their own instead, held until the last byte. Probes are answered whatever the load; their
//! streams, which need no key, have a small limit of theirs, so that strangers cannot pile them up.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tonic::body::Body;

use super::{Layer, Next, Req, Res, call::Call, refuse};
use crate::{
    body::{Capped, OnEnd, code_in},
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
pub(crate) struct Shed {
    requests: Semaphore,
    streams: Arc<Semaphore>,
    public_streams: Arc<Semaphore>,
    max_message_bytes: u64,
}

impl Shed {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            requests: Semaphore::new(limits.concurrency),
            streams: Arc::new(Semaphore::new(limits.streams)),
            public_streams: Arc::new(Semaphore::new(PUBLIC_STREAMS)),
            max_message_bytes: limits.max_message_bytes,
        }
    }
}

impl Layer for Shed {
    async fn handle<N: Next>(&self, call: Call, request: Req, next: &N) -> Res {
        let streaming = call.method.is_some_and(|method| method.server_streaming);
        if call.exempt && !streaming {
            return next.run(call, request).await;
        }
        if call.exempt {
            let Ok(stream) = Arc::clone(&self.public_streams).try_acquire_owned() else {
                return refuse_stream(call, "public_streams");
            };
            let response = next.run(call, request).await;
            return response.map(|body| Body::new(OnEnd::new(body, move |_| drop(stream))));
        }
        let Ok(slot) = self.requests.try_acquire() else {
            metrics::counter!("bursar_rpc_server_shed_total", "limit" => "requests").increment(1);
            let text = "the server has as many requests as it can handle";
            return refuse(call, error::resource_exhausted(reason::OVERLOADED, text, RETRY_AFTER));
        };
        let stream = if streaming {
            let Ok(stream) = Arc::clone(&self.streams).try_acquire_owned() else {
                return refuse_stream(call, "streams");
            };
            Some(stream)
        } else {
            None
        };
        // One message per request: its size can be bounded here. In a stream each message has the decoder's limit.
        let one_message = !call.method.is_some_and(|method| method.client_streaming);
        let limit = self.max_message_bytes.saturating_add(FRAME_BYTES);
        let request =
            if one_message { request.map(|body| Body::new(Capped::new(body, limit))) } else { request };
        let response = next.run(call, request).await;
        drop(slot);
        match stream {
            Some(stream) if code_in(response.headers()).is_none() => {
                response.map(|body| Body::new(OnEnd::new(body, move |_| drop(stream))))
            }
            _ => response,
        }
    }
}

fn refuse_stream(call: Call, limit: &'static str) -> Res {
    metrics::counter!("bursar_rpc_server_shed_total", "limit" => limit).increment(1);
    let text = "the server has as many open streams as it can handle";
    refuse(call, error::resource_exhausted(reason::TOO_MANY_STREAMS, text, RETRY_AFTER))
}
