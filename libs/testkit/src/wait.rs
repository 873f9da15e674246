//! Waiting for a condition instead of sleeping.

use std::time::{Duration, Instant};

/// The first look comes soon, later ones more rarely: many that wait at once must not slow down what they wait for.
const POLL: Duration = Duration::from_millis(10);
const POLL_AT_MOST: Duration = Duration::from_millis(100);

/// Polls `condition` until it is true; panics with `what` when it is still false after `limit`.
pub async fn wait_for<F, Fut>(what: &str, limit: Duration, mut condition: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    wait_for_value(what, limit, || {
        let answer = condition();
        async move { answer.await.then_some(()) }
    })
    .await;
}

/// Polls `probe` until it gives a value; panics with `what` when it has given none after `limit`.
pub async fn wait_for_value<T, F, Fut>(what: &str, limit: Duration, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let start = Instant::now();
    let mut pause = POLL;
    loop {
        // The limit also ends a probe that hangs.
        let left = limit.saturating_sub(start.elapsed()).max(POLL);
        match tokio::time::timeout(left, probe()).await {
            Ok(Some(value)) => return value,
            Ok(None) if start.elapsed() < limit => {
                tokio::time::sleep(pause).await;
                pause = (pause * 5 / 4).min(POLL_AT_MOST);
            }
            Ok(None) => panic!("waited {limit:?} in vain for: {what}"),
            Err(_) => panic!("waited {limit:?} in vain for: {what} (the probe itself did not answer)"),
        }
    }
}
