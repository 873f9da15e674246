//! Processes that die at every step of a payment.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::join_all;
use nix::sys::signal::Signal;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tests::payments::Customer;
use tests::report::say;
use tests::stack::Stack;
use tests::tron::{Devnet, judge};

use crate::support::{quick_stack, while_ordering};

/// Every place at which a process may die on the way of a payment, as far as the chain's kind could matter.
const POINTS: &[(&str, &[&str])] = &[
    (
        "execution",
        &[
            "execution.after_claim",
            "execution.after_reserve",
            "execution.after_sign",
            "execution.after_persist",
            "execution.after_broadcast",
            "execution.after_confirm",
            "outbox.after_delivery/confirmation.PutWatch",
            "execution.before_verdict",
            "execution.after_verdict",
        ],
    ),
    (
        "signer-gateway",
        &["signer.before_decision", "signer.before_save", "signer.after_save", "signer.before_reply"],
    ),
    (
        "confirmation",
        &[
            "confirmation.before_watch",
            "confirmation.after_watch",
            "confirmation.before_sighting",
            "confirmation.after_sighting",
            "confirmation.before_verdict",
            "confirmation.after_verdict",
            "outbox.before_delivery/execution.RecordVerdict",
            "outbox.after_delivery/execution.RecordVerdict",
        ],
    ),
];

/// Has a service die at one point after the other, each time on its way with real payments.
async fn die_everywhere(stack: &Stack, service: &str, points: &[&str]) -> Result<usize> {
    for point in points {
        stack.kill(service)?;
        stack.start_again(service, &[("BURSAR_CRASH_POINT", point)])?;
        let what = format!("{service} to die at {point}");
        let died = || std::future::ready(stack.ended(service).transpose());
        let status = testkit::wait_for_value(&what, Duration::from_secs(90), died).await?;
        ensure!(
            status.signal() == Some(Signal::SIGABRT as i32),
            "{service} did not die at {point} but by itself ({status}):\n{}",
            stack.tail(service)
        );
    }
    stack.kill(service)?;
    stack.start_again(service, &[])?;
    Ok(points.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_made_once_whatever_dies_at_whichever_step() -> Result<()> {
    let stack = quick_stack().await?;
    let (customer, devnet) = (Customer::of(&stack)?, Devnet::of(&stack)?);
    let mut dice = StdRng::seed_from_u64(7);
    let dying = async {
        let dying = POINTS.iter().map(|(service, points)| die_everywhere(&stack, service, points));
        join_all(dying).await.into_iter().sum::<Result<usize>>()
    };
    let (deaths, orders) = while_ordering(&customer, &mut dice, dying).await?;
    customer.all_completed(&orders).await?;
    let tally = judge(&stack, &customer, &devnet, &orders, &[]).await?;
    ensure!(tally.failed == 0, "{tally:?}");
    say(format_args!("{deaths} deaths, {} payments on TRON made once, double payments: 0", orders.len()));
    Ok(())
}
