//! A stack whose workers are processes under the orchestrator: killed, they come back, and withdrawals are paid once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rpc::Client;
use tests::judge::judge;
use tests::payments::{Customer, PATIENCE};
use tests::report::say;
use tests::stack::Stack;

const PAYER: &str = "execution-withdrawal-bsc";
const FOLLOWER: &str = "confirmation-bsc";

type Workers = WorkerServiceClient<Client>;

async fn worker(workers: &Workers, id: &str) -> Result<pb::Worker> {
    let request = pb::GetWorkerRequest { id: id.to_owned() };
    let answer = workers.clone().get_worker(request).await?.into_inner();
    answer.worker.context("the answer holds no worker")
}

/// Waits until a worker has a process that is not this one.
async fn another(workers: &Workers, id: &str, old: u32) -> Result<pb::Worker> {
    testkit::wait_for(&format!("another process of {id}"), PATIENCE, || async {
        worker(workers, id).await.is_ok_and(|worker| worker.pid != 0 && worker.pid != old)
    })
    .await;
    worker(workers, id).await
}

fn kill_hard(pid: u32) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_come_back_by_themselves_and_every_withdrawal_is_paid_once() -> Result<()> {
    let stack = Stack::start_orchestrated()?;
    let customer = Customer::of(&stack)?;
    let workers: Workers = WorkerServiceClient::new(stack.client("worker-control", "operator")?);
    let mut paid = customer.order_some(2).await?;
    customer.all_completed(&paid).await.context("before anything dies")?;

    // The payer dies with work in hand: it is back after its backoff, without anybody's help.
    let orders = customer.order_some(6).await?;
    let payer = worker(&workers, PAYER).await?;
    kill_hard(payer.pid)?;
    let killed = Instant::now();
    let back = another(&workers, PAYER, payer.pid).await?;
    say(format_args!(
        "{PAYER} was back {:.1} s after kill -9; its backoff is 20 s",
        killed.elapsed().as_secs_f64()
    ));
    assert!(killed.elapsed() > Duration::from_secs(15), "not before its backoff");
    customer.all_completed(&orders).await.context("after kill -9 of the payer")?;
    paid.extend(orders);

    // Asked to, the orchestrator does not wait.
    let orders = customer.order_some(4).await?;
    kill_hard(back.pid)?;
    let killed = Instant::now();
    testkit::wait_for("the end to be noticed", PATIENCE, || async {
        worker(&workers, PAYER).await.is_ok_and(|worker| worker.status() == WorkerStatus::BackingOff)
    })
    .await;
    let request = pb::RestartWorkerRequest { id: PAYER.to_owned() };
    workers.clone().restart_worker(request).await?;
    another(&workers, PAYER, back.pid).await?;
    say(format_args!("{PAYER} was back {:.1} s after kill -9 and a restart", killed.elapsed().as_secs_f64()));
    customer.all_completed(&orders).await.context("after a restart of the payer")?;
    paid.extend(orders);

    // The orchestrator dies: workers go on, and its successor adopts them.
    let (payer, follower) = (worker(&workers, PAYER).await?, worker(&workers, FOLLOWER).await?);
    stack.kill("worker-control")?;
    let orders = customer.order_some(4).await?;
    customer.all_completed(&orders).await.context("without an orchestrator")?;
    paid.extend(orders);
    stack.start_again("worker-control", &[])?;
    testkit::wait_for("the successor", PATIENCE, || async { worker(&workers, PAYER).await.is_ok() }).await;
    assert_eq!(worker(&workers, PAYER).await?.pid, payer.pid, "adopted");
    assert_eq!(worker(&workers, FOLLOWER).await?.pid, follower.pid, "adopted");

    // Redis is away: payments are leased by the database, so they go on.
    stack.kill("redis")?;
    let orders = customer.order_some(2).await?;
    customer.all_completed(&orders).await.context("without Redis")?;
    paid.extend(orders);

    judge(&stack, &customer, &paid).await?;
    say(format_args!("4 processes killed, {} withdrawals paid, double payments: 0", paid.len()));
    Ok(())
}
