//! A request that cannot be decoded is its caller's mistake.
//!
//! tonic answers it with `INTERNAL`, before any handler runs. Callers and alerts read that as a fault of the server, and
//! a caller might retry what can never succeed.

use tonic::{Code, Status};

use super::Res;
use crate::{body::code_in, error};

/// How tonic's and prost's texts about an unreadable request begin. Matching them is all that can be done: neither offers a hook,
/// and a codec of our own could not tell a request from a response.
const UNREADABLE: [&str; 5] = [
    "failed to decode Protobuf message",
    "Missing request message",
    "Unexpected EOF decoding stream",
    "protocol error: received message with",
    "Error decompressing",
];

/// Turns tonic's `INTERNAL` about the request's bytes into `INVALID_ARGUMENT`. Faults of handlers carry details and stay as
/// they are.
pub(super) fn correct_code(response: Res) -> Res {
    if code_in(response.headers()) != Some(Code::Internal) {
        return response;
    }
    let status = Status::from_header_map(response.headers());
    let unreadable = |status: &Status| {
        status.details().is_empty() && UNREADABLE.iter().any(|text| status.message().starts_with(text))
    };
    match status.filter(unreadable) {
        Some(status) => error::invalid("request", status.message()).into_http(),
        None => response,
    }
}
