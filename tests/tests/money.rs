//! Whole stacks of separate processes, killed at the worst moments. The judge is the chain itself.
//!
//! One stack serves all rounds: a round hurts one service at one place while withdrawals are under way, starts it again by its
//! recorded command, and waits until every withdrawal is completed. At the end the whole chain is read.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tests::ledger::Ledger;
use tests::payments::{Customer, Ordered};
use tests::stack::Stack;

/// Long enough for leases to run out on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every place of the write-ahead protocol and of the messages around it at which a process may die.
const POINTS: &[(&str, &str)] = &[
    ("execution", "execution.after_claim"),
    ("execution", "execution.after_reserve"),
    ("execution", "execution.after_sign"),
    ("execution", "execution.after_persist"),
    ("execution", "execution.after_broadcast"),
    ("execution", "execution.after_confirm"),
];

/// Services killed from outside, at whatever they are doing.
const KILLED: &[&str] = &["intent", "execution", "signer-gateway", "confirmation"];

/// Shown also when the test passes: the harness captures `println!`, not what is written to the handle.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

async fn order_some(customer: &Customer, count: usize) -> Result<Vec<Ordered>> {
    let orders = (0..count).map(|n| {
        let (asset, amount) = if n % 2 == 0 { ("BNB", "0.001") } else { ("USDT", "1.25") };
        customer.order(asset, amount)
    });
    try_join_all(orders).await
}

async fn all_completed(customer: &Customer, orders: &[Ordered]) -> Result<()> {
    try_join_all(orders.iter().map(|o| customer.completed(&o.id, PATIENCE))).await.map(|_| ())
}

/// Arms a crash point, pays, and waits for the process to die at it.
async fn crash_at(
    stack: &mut Stack,
    customer: &Customer,
    service: &str,
    point: &str,
) -> Result<Vec<Ordered>> {
    stack.kill(service)?;
    stack.start_again(service, &[("BURSAR_CRASH_POINT", point)])?;
    let orders = order_some(customer, 4).await?;
    let child = stack.started(service)?;
    let what = format!("{service} to die at {point}");
    testkit::wait_for_value(&what, PATIENCE, || std::future::ready(child.try_wait().transpose())).await?;
    stack.start_again(service, &[])?;
    all_completed(customer, &orders).await.with_context(|| format!("after a crash at {point}"))?;
    Ok(orders)
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_are_paid_exactly_once_whatever_dies_whenever() -> Result<()> {
    let mut stack = Stack::start()?;
    let customer = Customer::of(&stack)?;
    let mut paid = Vec::new();
    let mut faults = 0;

    for (service, point) in POINTS {
        paid.extend(crash_at(&mut stack, &customer, service, point).await?);
        faults += 1;
    }
    for service in KILLED {
        let orders = order_some(&customer, 6).await?;
        stack.kill(service)?;
        let while_away = if *service == "intent" { Vec::new() } else { order_some(&customer, 2).await? };
        stack.start_again(service, &[])?;
        faults += 1;
        all_completed(&customer, &orders).await.with_context(|| format!("after kill -9 of {service}"))?;
        all_completed(&customer, &while_away).await.with_context(|| format!("while {service} was away"))?;
        paid.extend(orders);
        paid.extend(while_away);
    }

    let node = stack.part("bsc")?.url.clone();
    Ledger::read(&node).await?.paid_once(&paid)?;
    say(format_args!("{faults} faults injected, {} withdrawals paid, double payments: 0", paid.len()));
    Ok(())
}

/// Withdrawals of the storm, and how many are requested between two kills.
const STORM: usize = 160;
const WAVE: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_kills_pays_every_withdrawal_once() -> Result<()> {
    let seed =
        std::env::var("BURSAR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    say(format_args!("seed {seed}; BURSAR_SEED={seed} repeats the order of kills"));
    let mut dice = StdRng::seed_from_u64(seed);
    let mut stack = Stack::start()?;
    let customer = Customer::of(&stack)?;
    let mut paid = Vec::new();
    for _ in 0..STORM / WAVE {
        paid.extend(order_some(&customer, WAVE).await?);
        let service = KILLED.choose(&mut dice).context("there is somebody to kill")?;
        stack.kill(service)?;
        stack.start_again(service, &[])?;
    }
    all_completed(&customer, &paid).await.with_context(|| format!("seed {seed}"))?;
    let node = stack.part("bsc")?.url.clone();
    Ledger::read(&node).await?.paid_once(&paid)?;
    say(format_args!("{} kills, {} withdrawals paid, double payments: 0", STORM / WAVE, paid.len()));
    Ok(())
}
