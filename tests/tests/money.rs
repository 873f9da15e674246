//! Whole stacks of separate processes, killed at the worst moments. The judge is the chain itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tests::crash::{POINTS, die_at_every_step};
use tests::judge::judge;
use tests::load::{BOTH, under_load};
use tests::payments::{Customer, Ordered, retried};
use tests::report::{from_environment, say};
use tests::stack::Stack;

/// A customer comes this often while services die.
const PACE: Duration = Duration::from_millis(800);

/// Who is killed from outside, at whatever it is doing.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Service(&'static str),
    /// A process under the orchestrator, by its id.
    Worker(&'static str),
}

const VICTIMS: &[Victim] = &[
    Victim::Service("intent"),
    Victim::Service("execution"),
    Victim::Service("signer-gateway"),
    Victim::Service("confirmation"),
    Victim::Service("worker-control"),
    Victim::Worker("execution-withdrawal-bsc"),
    Victim::Worker("confirmation-bsc"),
];

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Victim::Service(name) | Victim::Worker(name) => name,
        }
    }

    /// Kills it, and has a service started again: by turns as a script would from the recorded command, and as an operator would. A
    /// worker is the orchestrator's to bring back. Whether there was anybody to kill.
    async fn kill(self, stack: &Stack, by_operator: bool) -> Result<bool> {
        match self {
            Victim::Service(name) => {
                stack.kill(name)?;
                let back = if by_operator { stack.restart(name) } else { stack.start_again(name, &[]) };
                back.map(|()| true)
            }
            Victim::Worker(id) => {
                let client = WorkerServiceClient::new(stack.client("worker-control", "operator")?);
                let request = pb::GetWorkerRequest { id: id.to_owned() };
                let found = retried(|| async { client.clone().get_worker(request.clone()).await });
                let worker = found.await?.worker.context("the answer holds no worker")?;
                // One that has not settled since its last death would wait longer and longer, as it should, and the storm for it.
                let is_settled = worker.pid != 0 && worker.failures == 0;
                Ok(is_settled && kill(Pid::from_raw(i32::try_from(worker.pid)?), Signal::SIGKILL).is_ok())
            }
        }
    }
}

/// All four services die at the same time, each at its own points, while customers keep ordering in one asset.
async fn all_die(stack: &Stack, customer: &Customer, asset: (&str, &str)) -> Result<(usize, Vec<Ordered>)> {
    under_load(customer, &[asset], PACE, die_at_every_step(stack)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_are_paid_exactly_once_whatever_dies_at_whichever_step() -> Result<()> {
    let stack = Stack::start()?;
    let customer = Customer::of(&stack)?;
    let mut paid = Vec::new();
    let mut faults = 0;
    for asset in BOTH {
        let (died, ordered) = all_die(&stack, &customer, *asset).await?;
        say(format_args!(
            "{}: {died} deaths at {died} steps, {} withdrawals under way",
            asset.0,
            ordered.len()
        ));
        faults += died;
        paid.extend(ordered);
    }
    customer.all_completed(&paid).await?;
    judge(&stack, &customer, &paid).await?;
    say(format_args!("{faults} faults injected, {} withdrawals paid, double payments: 0", paid.len()));
    Ok(())
}

fn next(waiting: &mut Vec<Victim>, dice: &mut StdRng) -> Option<Victim> {
    if waiting.is_empty() {
        waiting.extend(VICTIMS);
        waiting.shuffle(dice);
    }
    waiting.pop()
}

/// Withdrawals of the storm unless `BURSAR_STORM` says otherwise, and how many are requested between two kills.
const STORM: usize = 120;
const WAVE: usize = 10;

/// In the way stacks run by default: the orchestrator and the workers under it die like everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_kills_pays_every_withdrawal_once() -> Result<()> {
    let began = std::time::Instant::now();
    let count: usize = from_environment("BURSAR_STORM").unwrap_or(STORM);
    let seed = from_environment("BURSAR_SEED").unwrap_or_else(rand::random::<u64>);
    say(format_args!("seed {seed}; BURSAR_SEED={seed} repeats the order of kills"));
    let mut dice = StdRng::seed_from_u64(seed);
    let stack = Stack::start_orchestrated()?;
    let customer = Customer::of(&stack)?;
    let mut paid = Vec::new();
    let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
    let mut waiting = Vec::new();
    for wave in 0..count.div_ceil(WAVE) {
        // Somebody dies while the wave is being requested, approved, signed and sent.
        let ordering = customer.order_some(WAVE.min(count - paid.len()));
        let (ordered, killed) = tokio::join!(ordering, async {
            loop {
                let victim = next(&mut waiting, &mut dice).context("there is somebody to kill")?;
                if victim.kill(&stack, wave % 4 == 3).await? {
                    return anyhow::Ok(victim.name());
                }
            }
        });
        paid.extend(ordered?);
        *kills.entry(killed?).or_default() += 1;
    }
    customer.all_completed(&paid).await.with_context(|| format!("seed {seed}"))?;
    judge(&stack, &customer, &paid).await.with_context(|| format!("seed {seed}"))?;
    say(format_args!(
        "{} kills {kills:?}, {} withdrawals paid in {} s, double payments: 0",
        kills.values().sum::<usize>(),
        paid.len(),
        began.elapsed().as_secs()
    ));
    Ok(())
}

#[tokio::test]
async fn every_crash_point_of_the_matrix_is_in_the_sources() -> Result<()> {
    let mut sources = String::new();
    let mut folders = vec![
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../services"),
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../libs/db/src"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path)?);
            }
        }
    }
    let in_matrix: BTreeSet<&str> = POINTS
        .iter()
        .flat_map(|(_, points)| *points)
        .map(|point| point.split('/').next().unwrap_or(point))
        .collect();
    let in_sources: BTreeSet<&str> = sources.split('"').filter(|text| is_crash_point(text)).collect();
    let missing: Vec<_> = in_matrix.symmetric_difference(&in_sources).collect();
    ensure!(missing.is_empty(), "only in the matrix or only in the sources: {missing:?}");
    Ok(())
}

/// Whether a text of the sources names a crash point on the way of a payment. The indexer's own suite holds those of the indexer.
fn is_crash_point(text: &str) -> bool {
    let Some((service, step)) = text.split_once('.') else { return false };
    ["intent", "execution", "signer", "confirmation", "outbox"].contains(&service)
        && (step.starts_with("before_") || step.starts_with("after_"))
        && step.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
