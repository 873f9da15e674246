//! A panic in a handler is that request's fault alone.
//!
//! Without it a panic would reset the stream, and the client would see a transport error that looks like a network problem.
//! The caller gets `INTERNAL`; the log has the text.
//!
//! By hand and not by tower-http's `CatchPanic`: that one does not know the request, and a gRPC caller and an HTTP caller need
//! different responses.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;

use super::{Layer, Next, Req, Res, refuse, target::Target};
use crate::error;

#[derive(Debug)]
pub(crate) struct CatchPanic;

#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
struct Panicked(String);

impl Layer for CatchPanic {
    async fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> Res {
        // Unwind safety: the future is dropped after a panic, and what handlers share lives behind databases and locks
        // that recover from poisoning.
        match AssertUnwindSafe(next.run(target, request)).catch_unwind().await {
            Ok(response) => response,
            Err(payload) => refuse(target, error::internal(&Panicked(text(payload.as_ref())))),
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text").to_owned()
}
