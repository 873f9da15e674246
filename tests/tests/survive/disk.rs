//! The database's disk is full.

use std::cell::Cell;

use anyhow::{Result, ensure};
use tests::disk::Disk;
use tests::judge::judge;
use tests::payments::{Customer, PATIENCE};
use tests::report::say;
use tests::stack::Stack;

async fn requests(stack: &Stack, outcome: &str) -> f64 {
    let outcome = format!("outcome=\"{outcome}\"");
    stack.metric("signer-gateway", &["bursar_signer_requests_total", &outcome]).await.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_signing_and_recovers_without_hand_work() -> Result<()> {
    let (disk, stack) = Disk::below_a_stack()?;
    let customer = Customer::of(&stack)?;
    let mut paid = customer.order_some(4).await?;
    customer.all_completed(&paid).await?;

    // Everything up to the signer is done while there is room, so that the signer is what meets the full disk.
    stack.kill("signer-gateway")?;
    paid.extend(customer.order_some(30).await?);
    // A fresh log file, so that the server survives: it is the tables that cannot grow.
    testkit::execute(&stack.part("postgres")?.url, &["SELECT pg_switch_wal()", "CHECKPOINT"]).await;
    disk.fill(&stack)?;
    stack.start_again("signer-gateway", &[])?;
    // What fits into pages that are there may still be signed; then nothing is, however often execution asks.
    let last = Cell::new((-1.0, 0.0));
    testkit::wait_for("the signer to fail for want of room, and to sign nothing", PATIENCE, || async {
        let now = (requests(&stack, "signed").await, requests(&stack, "failed").await);
        if now.0 > last.get().0 {
            last.set(now);
        }
        now.1 >= last.get().1 + 5.0
    })
    .await;
    let signed = requests(&stack, "signed").await;
    ensure!(signed < 30.0, "all {signed} were signed on a full disk");

    disk.make_room(&stack)?;
    customer.all_completed(&paid).await?;
    judge(&stack, &customer, &paid).await?;
    say(format_args!("{signed} of 30 signed before the disk was full, the others after"));
    Ok(())
}
