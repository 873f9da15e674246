//! A stack that is quick to try again, and payments to strangers.

use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use proto::intent::v1::WithdrawalStatus;
use rand::Rng as _;
use rand::rngs::StdRng;
use tests::load;
use tests::payments::{Customer, Ordered};
use tests::stack::Stack;
use tests::tron::tune;
use types::{Address, AddressFormat};

/// Customers at the same time.
const CUSTOMERS: usize = 24;
/// A customer comes this often while something is being broken.
const PACE: Duration = Duration::from_millis(400);
/// How long everything may take to be paid once nothing breaks any more.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(150);

/// Short, so that the ends of windows are seen.
pub(crate) const SHORT_MS: u32 = 8_000;
/// Longer than anything takes on a busy machine: nothing needs a second signature.
pub(crate) const LONG_MS: u32 = 300_000;

/// A stack whose services are quick to try again, with windows of this length.
pub(crate) async fn quick_stack(window_ms: u32) -> Result<Stack> {
    let stack = Stack::start()?;
    let settings = format!(
        "window_ms = {window_ms}\nnode_timeout_ms = 1500\nworkers = {{ lease_ms = 4000, resend_after_ms = 1500 }}\n\
         [retry]\nwithdrawal = {{ base_ms = 300, cap_ms = 1000, max_tries = 40 }}\n\
         wait = {{ base_ms = 200, cap_ms = 1000 }}"
    );
    tune(&stack.config("execution"), &settings)?;
    tune(
        &stack.config("confirmation"),
        "[follow]\nvoid_check_ms = 500\nretry_ms = 300\nlease_ms = 3000\nnode_timeout_ms = 1500",
    )?;
    for service in ["execution", "confirmation"] {
        stack.kill(service)?;
        stack.start_again(service, &[])?;
        stack.serving(service).await?;
    }
    Ok(stack)
}

pub(crate) fn stranger(dice: &mut StdRng) -> Address {
    Address::from_body(AddressFormat::Tron, dice.random())
}

/// So many payments, half of them in TRX and half in the token, each to a stranger.
pub(crate) async fn order_some(customer: &Customer, dice: &mut StdRng, count: usize) -> Result<Vec<Ordered>> {
    let wanted: Vec<(Address, &str)> =
        (0..count).map(|n| (stranger(dice), if n % 2 == 0 { "TRX" } else { "USDT" })).collect();
    let orders = wanted.into_iter().map(|(to, asset)| customer.order_to("tron", to, (asset, "1.25"), None));
    futures::stream::iter(orders).buffer_unordered(CUSTOMERS).collect::<Vec<_>>().await.into_iter().collect()
}

/// Orders payments by turns in TRX and in the token, each to a stranger, for as long as `breaking` takes.
pub(crate) async fn while_ordering<T>(
    customer: &Customer,
    dice: &mut StdRng,
    breaking: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Ordered>)> {
    let mut assets = ["TRX", "USDT"].into_iter().cycle();
    let order = || {
        let (customer, to, asset) = (customer.clone(), stranger(dice), assets.next().unwrap_or("TRX"));
        async move { customer.order_to("tron", to, (asset, "2.5"), None).await }
    };
    load::while_ordering(order, PACE, breaking).await
}

/// Waits until the last of these has reached execution.
pub(crate) async fn enqueued(customer: &Customer, orders: &[Ordered]) -> Result<()> {
    for order in orders {
        testkit::wait_for("a withdrawal to be queued", AFTERWARDS, || async {
            customer.status(&order.id).await.is_ok_and(|told| told.status() != WithdrawalStatus::Approved)
        })
        .await;
    }
    Ok(())
}

pub(crate) async fn customer_knows(customer: &Customer, orders: &[Ordered]) -> Result<()> {
    for order in orders {
        customer.ended(&order.id, AFTERWARDS).await?;
    }
    Ok(())
}
