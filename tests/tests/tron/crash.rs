//! Processes that die at every step of a payment.

use anyhow::{Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tests::crash::die_at_every_step;
use tests::payments::Customer;
use tests::report::say;
use tests::tron::{Devnet, judge};

use crate::support::{SHORT_MS, quick_stack, while_ordering};

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_made_once_whatever_dies_at_whichever_step() -> Result<()> {
    let stack = quick_stack(SHORT_MS).await?;
    let (customer, devnet) = (Customer::of(&stack)?, Devnet::of(&stack)?);
    let mut dice = StdRng::seed_from_u64(7);
    let (deaths, orders) = while_ordering(&customer, &mut dice, die_at_every_step(&stack)).await?;
    customer.all_completed(&orders).await?;
    let tally = judge(&stack, &customer, &devnet, &orders, &[]).await?;
    ensure!(tally.failed == 0, "{tally:?}");
    say(format_args!(
        "{deaths} faults injected, {} payments on TRON made once, double payments: 0",
        orders.len()
    ));
    Ok(())
}
