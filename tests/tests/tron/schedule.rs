//! A seeded random schedule of faults over many payments: whatever breaks in whichever order, none is made twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tests::payments::Customer;
use tests::report::{from_environment, say};
use tests::stack::Stack;
use tests::tron::{Devnet, NODES, all_ended, judge, token};

use crate::support::{AFTERWARDS, SENT, SHORT_MS, customer_knows, enqueued, order_some, quick_stack};

/// Payments of the schedule unless `BURSAR_TRON_PAYMENTS` says otherwise.
const PAYMENTS: usize = 1_000;
/// The schedule unless `BURSAR_SEED` says otherwise: a red run can be repeated as it was.
const SEED: u64 = 1;
/// Something breaks this often.
const PACE: Duration = Duration::from_millis(250);

/// What may go wrong with the answer to a question.
const ASKED: &[&str] =
    &["timeout", "bad_gateway", "truncated", "rate_limit", "lite", "empty", "hollow", "slow"];
const QUESTIONS: &[&str] = &[
    "gettransactioninfobyid",
    "gettransactionbyid",
    "getblock",
    "getblockbylimitnext",
    "getchainparameters",
    "getaccount",
    "triggerconstantcontract",
];

/// One thing that goes wrong; what it was.
async fn break_something(
    stack: &Stack,
    devnet: &Devnet,
    token: &str,
    dice: &mut StdRng,
) -> Result<&'static str> {
    let node = dice.random_range(0..NODES);
    Ok(match dice.random_range(0..100u32) {
        0..30 => {
            let kind = SENT.choose(dice).context("there are faults")?;
            let one = dice.random_bool(0.6).then_some(node);
            devnet.fault(one, kind, "broadcast", dice.random_range(1..12)).await?;
            "answers to broadcasts"
        }
        30..50 => {
            let kind = ASKED.choose(dice).context("there are faults")?;
            let path = QUESTIONS.choose(dice).context("there are questions")?;
            devnet.fault(Some(node), kind, path, dice.random_range(1..6)).await?;
            "answers to questions"
        }
        50..62 => {
            // Dice of its own: how much the newest blocks hold is another in each run, and what breaks next must not be.
            let mut coins = StdRng::seed_from_u64(dice.random());
            let drop: Vec<String> =
                devnet.newest(2).await?.into_iter().filter(|_| coins.random_bool(0.5)).collect();
            let fork =
                json!({ "depth": dice.random_range(1..=2), "include": dice.random_bool(0.5), "drop": drop });
            // A fork that would reach a solid block is refused, which is an outcome as good as any.
            let _ = devnet.admin("fork", fork).await;
            "forks"
        }
        62..68 => {
            devnet.admin("miss", json!({ "slots": dice.random_range(1..6) })).await?;
            "missed slots"
        }
        68..74 => {
            devnet.admin("mining", json!({ "include": dice.random_bool(0.4) })).await?;
            "empty blocks"
        }
        74..84 => {
            let lag = if dice.random_bool(0.5) { dice.random_range(1..8) } else { 0 };
            let change = json!({
                "node": node, "lag": lag, "isolated": dice.random_bool(0.2), "seen_cache": dice.random_bool(0.3),
                "busy": dice.random_bool(0.1), "lite": dice.random_bool(0.1),
            });
            devnet.admin("node", change).await?;
            "nodes that lag, hide or refuse"
        }
        84..92 => {
            let behaviour =
                ["revert", "out_of_energy", "normal"].choose(dice).context("there are behaviours")?;
            devnet.admin("behaviour", json!({ "token": token, "behaviour": behaviour })).await?;
            "behaviours of the token"
        }
        92..96 => {
            let price = [100, 100, 130].choose(dice).context("there are prices")?;
            devnet.admin("prices", json!({ "energy_fee_sun": price })).await?;
            "prices"
        }
        _ => {
            let service = ["execution", "confirmation", "signer-gateway"].choose(dice).context("services")?;
            stack.kill(service)?;
            stack.start_again(service, &[])?;
            "kills"
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seeded_schedule_of_faults_never_pays_twice() -> Result<()> {
    let began = Instant::now();
    let count: usize = from_environment("BURSAR_TRON_PAYMENTS").unwrap_or(PAYMENTS);
    let seed = from_environment("BURSAR_SEED").unwrap_or(SEED);
    say(format_args!(
        "seed {seed}; BURSAR_SEED={seed} repeats the schedule, BURSAR_TRON_PAYMENTS sets its length"
    ));
    let stack = quick_stack(SHORT_MS).await?;
    let (customer, devnet) = (Customer::of(&stack)?, Devnet::of(&stack)?);
    let token = token(&stack).await?;
    let (mut dice, mut broken) = (StdRng::seed_from_u64(seed), BTreeMap::new());
    let mut destinations = StdRng::seed_from_u64(!seed);
    let ordering = order_some(&customer, &mut destinations, count);
    tokio::pin!(ordering);
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let orders = loop {
        tokio::select! {
            orders = &mut ordering => break orders?,
            _ = pace.tick() => {
                let what = break_something(&stack, &devnet, &token, &mut dice).await?;
                *broken.entry(what).or_insert(0usize) += 1;
            }
        }
    };
    // What is under way meets as many faults again.
    for _ in 0..40 {
        pace.tick().await;
        let what = break_something(&stack, &devnet, &token, &mut dice).await?;
        *broken.entry(what).or_insert(0usize) += 1;
    }
    devnet.heal(&token).await?;
    let ordered = began.elapsed();
    enqueued(&customer, &orders).await?;
    all_ended(&stack, AFTERWARDS).await.with_context(|| format!("seed {seed}"))?;
    // The customer hears of it a moment after the job has ended.
    customer_knows(&customer, &orders).await?;
    let tally =
        judge(&stack, &customer, &devnet, &orders, &[]).await.with_context(|| format!("seed {seed}"))?;
    say(format_args!(
        "{} faults {broken:?}; {} payments: {} completed, {} failed, {} signed again after proof; ordered in {} s, all in {} s; \
         double payments: 0",
        broken.values().sum::<usize>(),
        orders.len(),
        tally.completed,
        tally.failed,
        tally.signed_again,
        ordered.as_secs(),
        began.elapsed().as_secs()
    ));
    // Reverts may use up a payment's tries; a stack that pays nothing at all proves nothing.
    ensure!(tally.completed * 2 > orders.len(), "seed {seed}: only {} were paid", tally.completed);
    Ok(())
}
