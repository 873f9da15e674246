//! No handler runs for ever: the shorter of the server's limit and the caller's deadline.
//!
//! It bounds the time to the answer. A stream is exempt once it is set up, because living long is what it is for; it ends with
//! its caller, its handler or the server. A deadline means *unknown*, never *failed*: the handler is dropped at an await
//! point, and whatever it had committed stays committed.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::{Layer, Next, Req, Res, refuse, target::Target};
use crate::body::deadline_exceeded;

pub(crate) const GRPC_TIMEOUT: &str = "grpc-timeout";

#[derive(Debug)]
pub(crate) struct Timeout {
    pub(crate) limit: Duration,
}

impl Layer for Timeout {
    async fn handle<N: Next>(&self, target: Target, request: Req, next: &N) -> Res {
        if target.exempt {
            return next.run(target, request).await;
        }
        let limit = requested(request.headers()).map_or(self.limit, |limit| limit.min(self.limit));
        match tokio::time::timeout(limit, next.run(target, request)).await {
            Ok(response) => response,
            Err(_) => refuse(target, deadline_exceeded(limit)),
        }
    }
}

/// The caller's deadline. One that does not parse counts as none: the server's own limit holds anyway.
pub(crate) fn requested(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The protocol allows eight digits, which no unit can overflow.
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// A deadline as a header value: milliseconds while eight digits hold them, then seconds.
pub(crate) fn header(limit: Duration) -> HeaderValue {
    let millis = limit.as_millis();
    let text = if millis < 100_000_000 {
        format!("{millis}m")
    } else {
        format!("{}S", limit.as_secs().min(99_999_999))
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("99999999S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_written_as_they_are_read() {
        for limit in [Duration::from_millis(1), Duration::from_secs(30), Duration::from_secs(200_000)] {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static(GRPC_TIMEOUT), header(limit))]);
            assert_eq!(requested(&headers), Some(limit));
        }
    }

    #[test]
    fn nonsense_is_no_deadline() {
        for text in ["", "m", "12", "123456789m", "-1m", "1x", "+5S"] {
            let value = HeaderValue::from_str(text).unwrap();
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(GRPC_TIMEOUT), value)]);
            assert_eq!(requested(&headers), None, "{text}");
        }
    }
}
