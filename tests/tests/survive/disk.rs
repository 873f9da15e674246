//! The database's disk is full.

use anyhow::{Result, ensure};
use tests::disk::Disk;
use tests::judge::judge;
use tests::payments::Customer;
use tests::report::say;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_signing_and_recovers_without_hand_work() -> Result<()> {
    let (disk, stack) = Disk::below_a_stack()?;
    let customer = Customer::of(&stack)?;
    let mut paid = customer.order_some(4).await?;
    customer.all_completed(&paid).await?;

    // Everything up to the signer is done while there is room, so that the signer is what meets the full disk.
    stack.kill("signer-gateway")?;
    paid.extend(customer.order_some(30).await?);
    let signed = disk.starve_the_signer(&stack).await?;
    ensure!(signed < 30.0, "all {signed} were signed on a full disk");

    disk.make_room(&stack)?;
    customer.all_completed(&paid).await?;
    judge(&stack, &customer, &paid).await?;
    say(format_args!("{signed} of 30 signed before the disk was full, the others after"));
    Ok(())
}
