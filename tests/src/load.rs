//! Customers that keep coming while something is being broken.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;

use crate::payments::{Customer, Ordered};

/// Half of the customers want the native asset, half a token.
pub const BOTH: &[(&str, &str)] = &[("BNB", "0.001"), ("USDT", "1.25")];

/// So many customers wait for an answer at once, and no more: while nobody answers, their calls again and again would be a
/// fault of their own.
const WAITING: usize = 12;

/// Orders withdrawals on the development chain, one every `pace` and in these assets by turns, for as long as `breaking` takes.
pub async fn under_load<T>(
    customer: &Customer,
    assets: &[(&str, &str)],
    pace: Duration,
    breaking: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Ordered>)> {
    let mut turns = assets.iter().map(|(asset, amount)| ((*asset).to_owned(), (*amount).to_owned())).cycle();
    let order = || {
        let (customer, turn) = (customer.clone(), turns.next());
        async move {
            let (asset, amount) = turn.context("there is nothing to order")?;
            customer.order(&asset, &amount).await
        }
    };
    // What breaks things may be a large future; it is moved to the heap once.
    Box::pin(while_ordering(order, pace, breaking)).await
}

/// Has `order` place one order every `pace`, for as long as `breaking` takes.
pub async fn while_ordering<T, F>(
    order: impl FnMut() -> F,
    pace: Duration,
    breaking: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Ordered>)>
where
    F: Future<Output = Result<Ordered>> + Send + 'static,
{
    let (stop, stopped) = watch::channel(false);
    let breaking = Box::pin(async {
        let done = breaking.await;
        stop.send_replace(true);
        done
    });
    let (done, ordered) = tokio::join!(breaking, keep_ordering(order, pace, stopped));
    Ok((done?, ordered?))
}

async fn keep_ordering<F>(
    mut order: impl FnMut() -> F,
    pace: Duration,
    mut stop: watch::Receiver<bool>,
) -> Result<Vec<Ordered>>
where
    F: Future<Output = Result<Ordered>> + Send + 'static,
{
    let mut pace = tokio::time::interval(pace);
    let mut running: tokio::task::JoinSet<Result<Ordered>> = tokio::task::JoinSet::new();
    let mut ordered = Vec::new();
    while !*stop.borrow_and_update() {
        running.spawn(order());
        while running.len() >= WAITING
            && let Some(done) = running.join_next().await
        {
            ordered.push(done??);
        }
        tokio::select! {
            _ = pace.tick() => {}
            _ = stop.changed() => {}
        }
    }
    for done in running.join_all().await {
        ordered.push(done?);
    }
    Ok(ordered)
}
