//! Wrappers around message bodies: one that reports the end, and bodies that end early, because the message is too large, the
//! server drains or the deadline has passed. Each forwards frames unchanged.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status, body::Body};

use crate::error;

type Polled = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// The code in a header or trailer block.
pub(crate) fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes()))
}

/// Calls `done` exactly once: with the code in the trailers, the code of a failure, or `Cancelled` when the body is
/// dropped before its end.
pub(crate) struct OnEnd<F: FnOnce(Code) + Unpin> {
    inner: Body,
    done: Option<F>,
}

impl<F: FnOnce(Code) + Unpin> OnEnd<F> {
    pub(crate) fn new(inner: Body, done: F) -> Self {
        Self { inner, done: Some(done) }
    }

    fn finish(&mut self, code: Code) {
        if let Some(done) = self.done.take() {
            done(code);
        }
    }
}

impl<F: FnOnce(Code) + Unpin> HttpBody for OnEnd<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.finish(code_in(trailers).unwrap_or(Code::Unknown));
                }
            }
            Poll::Ready(Some(Err(status))) => self.finish(status.code()),
            Poll::Ready(None) => self.finish(Code::Ok),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<F: FnOnce(Code) + Unpin> Drop for OnEnd<F> {
    fn drop(&mut self) {
        // A body that knows it has ended may be dropped without a last poll.
        let code = if self.inner.is_end_stream() { Code::Ok } else { Code::Cancelled };
        self.finish(code);
    }
}

/// Fails with `RESOURCE_EXHAUSTED` once more than `limit` bytes have come. Decoding limits are set per service and easily
/// forgotten; this one holds for all.
pub(crate) fn limited(body: Body, limit: u64) -> Body {
    let too_large = move |error: Box<dyn std::error::Error + Send + Sync>| {
        if !error.is::<LengthLimitError>() {
            return Status::from_error(error);
        }
        let text = format!("the message is larger than {limit} bytes");
        error::refusal(Code::ResourceExhausted, error::reason::MESSAGE_TOO_LARGE, text, &[])
    };
    Body::new(Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).map_err(too_large))
}

/// Ends a stream that has no end of its own (health and reflection) once the server drains; otherwise one watching
/// probe would hold up every shutdown until the drain limit.
pub(crate) struct UntilDrain {
    inner: Body,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl UntilDrain {
    pub(crate) fn new(inner: Body, draining: CancellationToken) -> Self {
        Self { inner, draining: Box::pin(draining.cancelled_owned()), ended: false }
    }
}

impl HttpBody for UntilDrain {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        if self.ended {
            return Poll::Ready(None);
        }
        // The stream first: its last message (NOT_SERVING) must go out before the end.
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_ready() || self.draining.as_mut().poll(cx).is_pending() {
            return polled;
        }
        self.ended = true;
        let mut trailers = HeaderMap::new();
        let status = Status::unavailable("the server is shutting down");
        // Fails only for texts that are no header values; this one is plain ASCII.
        let _ = status.add_header(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// Fails with `DEADLINE_EXCEEDED` when the message is not complete in time. The headers may come early and
/// the rest never.
pub(crate) struct Deadline {
    inner: Body,
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn new(inner: Body, until: Instant, limit: Duration) -> Self {
        Self { inner, sleep: Box::pin(tokio::time::sleep_until(until)), limit }
    }
}

impl HttpBody for Deadline {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_ready() || self.sleep.as_mut().poll(cx).is_pending() {
            return polled;
        }
        Poll::Ready(Some(Err(deadline_exceeded(self.limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The one text for a passed deadline, on both sides.
pub(crate) fn deadline_exceeded(limit: Duration) -> Status {
    let text = format!("no answer within {} ms; whether the work was done is unknown", limit.as_millis());
    error::refusal(Code::DeadlineExceeded, error::reason::DEADLINE_EXCEEDED, text, &[])
}
