//! Waiting until a started process answers, or saying why it never did.

use std::time::Duration;

use crate::error::Error;
use crate::patience::Patience;
use crate::process::{Process, tail};

const POLL: Duration = Duration::from_millis(25);
/// A ping that hangs must not hide that the process has died meanwhile.
const PING_LIMIT: Duration = Duration::from_secs(2);
const TAIL_LINES: usize = 15;

/// Calls `ping` until it succeeds while `process` lives, at most for `limit` on a quiet machine. The text of the last refusal is part of
/// the error.
pub(crate) async fn until_ready<F, Fut>(
    process: &mut Process,
    limit: Duration,
    mut ping: F,
) -> Result<(), Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), String>>,
{
    let mut patience = Patience::of(limit);
    let mut last;
    loop {
        let answer = tokio::time::timeout(PING_LIMIT, ping()).await;
        // Looked at after the ping: a stranger's server on the same port may have answered for a process that is dead.
        if let Some(status) = process.exited() {
            return Err(Error::Exited {
                part: process.name().to_owned(),
                status,
                log: process.log().to_owned(),
                tail: tail(process.log(), TAIL_LINES),
            });
        }
        match answer {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(refusal)) => last = refusal,
            Err(_) => last = "no answer".to_owned(),
        }
        if patience.is_over() {
            return Err(Error::NotReady {
                part: process.name().to_owned(),
                seconds: limit.as_secs(),
                last,
                log: process.log().to_owned(),
                tail: tail(process.log(), TAIL_LINES),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}
