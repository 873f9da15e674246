//! Customers that keep coming while something is being broken.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;

use crate::payments::{Customer, Ordered};

/// Half of the customers want the native asset, half a token.
pub const BOTH: &[(&str, &str)] = &[("BNB", "0.001"), ("USDT", "1.25")];

/// So many customers wait for an answer at once, and no more: while nobody answers, their calls again and again would be a
/// fault of their own.
const WAITING: usize = 12;

/// Orders withdrawals, one every `pace` and in these assets by turns, for as long as `breaking` takes.
pub async fn under_load<T>(
    customer: &Customer,
    assets: &[(&str, &str)],
    pace: Duration,
    breaking: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Ordered>)> {
    let (stop, stopped) = watch::channel(false);
    let breaking = async {
        let done = breaking.await;
        stop.send_replace(true);
        done
    };
    let (done, ordered) = tokio::join!(breaking, keep_ordering(customer, assets, pace, stopped));
    Ok((done?, ordered?))
}

async fn keep_ordering(
    customer: &Customer,
    assets: &[(&str, &str)],
    pace: Duration,
    mut stop: watch::Receiver<bool>,
) -> Result<Vec<Ordered>> {
    let mut pace = tokio::time::interval(pace);
    let mut running: tokio::task::JoinSet<Result<Ordered>> = tokio::task::JoinSet::new();
    let mut ordered = Vec::new();
    for (asset, amount) in assets.iter().cycle() {
        if *stop.borrow_and_update() {
            break;
        }
        let (customer, asset, amount) = (customer.clone(), (*asset).to_owned(), (*amount).to_owned());
        running.spawn(async move { customer.order(&asset, &amount).await });
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
