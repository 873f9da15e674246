//! Waiting for a condition instead of sleeping. Limits are those of a quiet machine and grow with its load ([`Patience`]).

use std::time::Duration;

use devstack::Patience;

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
    let mut patience = Patience::of(limit);
    let mut pause = POLL;
    loop {
        // The limit also ends a probe that hangs.
        let left = patience.left_here().max(POLL);
        match tokio::time::timeout(left, probe()).await {
            Ok(Some(value)) => return value,
            Ok(None) if !patience.is_over() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 5 / 4).min(POLL_AT_MOST);
            }
            Ok(None) => panic!("waited {limit:?} (more on a busy machine) in vain for: {what}"),
            Err(_) => panic!("waited {limit:?} in vain for: {what} (the probe itself did not answer)"),
        }
    }
}
