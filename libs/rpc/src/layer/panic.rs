//! A panic in a handler is that request's fault alone.
//!
//! Without it a panic would reset the stream, and the client would see a transport error that looks like a network problem.
//! The caller gets `INTERNAL`; the log has the text.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;

use super::{Layer, Next, Req, Res, call::Call, refuse};
use crate::error;

#[derive(Debug)]
pub(crate) struct CatchPanic;

#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
struct Panicked(String);

impl Layer for CatchPanic {
    async fn handle<N: Next>(&self, call: Call, request: Req, next: &N) -> Res {
        // Unwind safety: the future is dropped after a panic, and what handlers share lives behind databases and locks
        // that recover from poisoning.
        match AssertUnwindSafe(next.run(call, request)).catch_unwind().await {
            Ok(response) => response,
            Err(payload) => refuse(call, error::internal(&Panicked(text(payload.as_ref())))),
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
