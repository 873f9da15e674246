//! Following a service over its restarts: a broken connection is tried again, a refusal ends it.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use crate::output;
use crate::progress::say;

/// Between two tries to reach a service that is away.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether anything follows a stream that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// More will come: the service drained, and another is about to take its place.
    More,
    Nothing,
}

/// Calls `once` until nothing is left. What it has seen so far is its own to remember, so that it goes on from there.
pub async fn follow(mut once: impl AsyncFnMut() -> Result<Remaining>) -> Result<()> {
    // An outage is reported once, not for each try.
    let mut reported = false;
    loop {
        let began = Instant::now();
        let ended = once().await;
        // What lasted this long had a connection.
        reported &= began.elapsed() < PAUSE;
        match ended {
            Ok(Remaining::Nothing) => return Ok(()),
            Ok(Remaining::More) => {}
            Err(error) if error.downcast_ref().is_some_and(is_broken) => {
                if !reported {
                    say(format_args!("trying again: {}", output::explain(&error)));
                }
                reported = true;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the connection failed rather than the call: a fault of the service itself carries a reason.
fn is_broken(status: &tonic::Status) -> bool {
    match status.code() {
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled => true,
        tonic::Code::Internal => rpc::error::reason_of(status).is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_outage_is_waited_out_and_a_refusal_is_told() {
        let mut script =
            vec![Err(tonic::Status::unavailable("away")), Ok(Remaining::More), Ok(Remaining::Nothing)]
                .into_iter();
        follow(async || Ok(script.next().unwrap()?)).await.unwrap();
        assert!(script.next().is_none());

        let mut calls = 0;
        let refused = follow(async || {
            calls += 1;
            Err(tonic::Status::not_found("no such withdrawal").into())
        });
        let refused = refused.await.unwrap_err();
        assert_eq!(output::explain(&refused), "no such withdrawal (NotFound)");
        assert_eq!(calls, 1);
    }
}
