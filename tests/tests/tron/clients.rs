//! What was paid, read by a program of other people: an unchanged tronweb.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;
use tests::payments::{Customer, Ordered};
use tests::stack::Stack;
use tests::tron::{Devnet, judge, token};

use crate::support::order_some;

const TRONWEB: &str = "tronweb@6.5.1";

/// Installed on demand, pinned, where the tests of the development network put it too.
fn tronweb() -> Result<PathBuf> {
    let chosen = std::env::var_os("BURSAR_TOOLS").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/bursar/tools"));
    let folder = chosen.or_else(home).context("no home directory")?.join("npm").join(TRONWEB);
    if folder.exists() {
        return Ok(folder);
    }
    let parent = folder.parent().context("below the tools")?;
    std::fs::create_dir_all(parent)?;
    let draft = tempfile::tempdir_in(parent)?;
    let options =
        ["install", "--prefix", ".", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", TRONWEB];
    let installed = Command::new("npm").current_dir(draft.path()).args(options).status()?;
    ensure!(installed.success(), "npm cannot install {TRONWEB}");
    // Fails when another test was first; then its folder serves as well.
    let renamed = std::fs::rename(draft.path(), &folder);
    ensure!(renamed.is_ok() || folder.exists(), "cannot install into {}", folder.display());
    Ok(folder)
}

fn read(modules: &Path, devnet: &Devnet, token: &str, ids: &[String]) -> Result<Vec<Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tron/read.cjs");
    let output =
        Command::new("node").arg(script).arg(modules).args([devnet.url(), token]).args(ids).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn tronweb_sees_the_amounts_that_were_ordered() -> Result<()> {
    let modules = tokio::task::block_in_place(tronweb)?;
    let stack = Stack::start()?;
    let (customer, devnet) = (Customer::of(&stack)?, Devnet::of(&stack)?);
    let token = token(&stack).await?;
    let orders: Vec<Ordered> = order_some(&customer, &mut StdRng::seed_from_u64(3), 4).await?;
    customer.all_completed(&orders).await?;
    let mut ids = Vec::new();
    for order in &orders {
        ids.push(customer.status(&order.id).await?.final_tx_hash);
    }
    let seen = tokio::task::block_in_place(|| read(&modules, &devnet, &token, &ids))?;
    for ((order, id), seen) in orders.iter().zip(&ids).zip(&seen) {
        ensure!(seen["id"] == **id, "{seen} is not {id}");
        ensure!(seen["kind"] == *order.asset, "{seen}");
        ensure!(seen["to"] == *order.destination.to_string(), "{seen}");
        ensure!(seen["amount"] == *order.amount_raw, "{seen}");
        if order.asset == "TRX" {
            ensure!(seen["balance"] == *order.amount_raw, "the receiver has what was paid: {seen}");
        }
    }
    let tally = judge(&stack, &customer, &devnet, &orders, &[]).await?;
    ensure!(tally.completed == orders.len() && tally.signed_again == 0, "{tally:?}");
    Ok(())
}
