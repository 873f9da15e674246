//! What payments stand on: clocks, servers that nobody needs, the orchestrator, and the services themselves, doubled, paused
//! and replaced.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use proto::execution::v1 as ex;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::workercontrol::v1 as wc;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tests::clock::{WrongClock, check_off};
use tests::disk::Disk;
use tests::judge::job_of;
use tests::payments::{Customer, Ordered, PATIENCE};
use tests::report::say;
use tests::stack::Stack;
use tests::tron::{Devnet, judge};

use crate::support::{LONG_MS, order_some, quick_stack, stranger, while_ordering};

const SERVICES: [&str; 4] = ["intent", "execution", "signer-gateway", "confirmation"];

/// Payments on one stack, with everything that was ordered.
struct Ground<'a> {
    stack: &'a Stack,
    customer: Customer,
    dice: StdRng,
    orders: Vec<Ordered>,
}

impl<'a> Ground<'a> {
    fn of(stack: &'a Stack) -> Result<Self> {
        let (customer, dice) = (Customer::of(stack)?, StdRng::seed_from_u64(23));
        Ok(Self { stack, customer, dice, orders: Vec::new() })
    }

    async fn order(&mut self, count: usize) -> Result<Vec<Ordered>> {
        let orders = order_some(&self.customer, &mut self.dice, count).await?;
        self.orders.extend(orders.iter().cloned());
        Ok(orders)
    }

    /// Orders payments and waits until they are made.
    async fn pay(&mut self, count: usize) -> Result<Vec<Ordered>> {
        let orders = self.order(count).await?;
        self.customer.all_completed(&orders).await?;
        Ok(orders)
    }

    /// Breaks something while customers keep coming, and waits until all of them are paid.
    async fn during<T>(&mut self, breaking: impl Future<Output = Result<T>>) -> Result<T> {
        let (broken, orders) = while_ordering(&self.customer, &mut self.dice, breaking).await?;
        self.customer.all_completed(&orders).await?;
        self.orders.extend(orders);
        Ok(broken)
    }

    async fn job(&self, order: &Ordered) -> Result<ex::Job> {
        let client = ExecutionServiceClient::new(self.stack.client("execution", "auditor")?);
        job_of(&client, ex::get_job_request::Key::WithdrawalId(order.id.clone())).await
    }

    /// Every payment was made once, and nothing was signed twice.
    async fn judged(self) -> Result<()> {
        let devnet = Devnet::of(self.stack)?;
        let tally = judge(self.stack, &self.customer, &devnet, &self.orders, &[]).await?;
        ensure!(tally.completed == self.orders.len(), "{tally:?}");
        say(format_args!("{tally:?}; double payments: 0"));
        Ok(())
    }
}

/// Clocks that differ by two hours between services: windows are counted by blocks, so none closes early or is waited for.
async fn wrong_clocks(ground: &mut Ground<'_>) -> Result<()> {
    let (clock, stack) = (WrongClock::new()?, ground.stack);
    let wrong = SERVICES.into_iter().zip([("+3600s", 60), ("-3600s", -60)].into_iter().cycle());
    for (service, (offset, _)) in wrong.clone() {
        stack.end(service, Signal::SIGTERM)?;
        stack.start_again(service, &clock.environment(offset))?;
    }
    for (service, (_, minutes)) in wrong {
        stack.serving(service).await?;
        check_off(stack, service, minutes)?;
    }
    for order in ground.pay(6).await? {
        let job = ground.job(&order).await?;
        ensure!(job.attempts.len() == 1, "a wrong clock cost a signature: {job:?}");
    }
    stack.restore()
}

/// No payment needs Redis or MongoDB, not even of services that start while these are away.
async fn bystanders_away(ground: &mut Ground<'_>) -> Result<()> {
    let stack = ground.stack;
    for server in ["redis", "mongodb"] {
        stack.kill(server)?;
    }
    for service in SERVICES {
        stack.end(service, Signal::SIGTERM)?;
        stack.start_again(service, &[])?;
    }
    ground.pay(4).await?;
    for server in ["redis", "mongodb"] {
        stack.start_again(server, &[])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_payments_stand_on_goes_away_and_each_is_made_once() -> Result<()> {
    let stack = quick_stack(LONG_MS).await?;
    let mut ground = Ground::of(&stack)?;
    wrong_clocks(&mut ground).await.context("clocks")?;
    bystanders_away(&mut ground).await.context("Redis and MongoDB")?;
    ground.judged().await
}

/// Two executions claim from one queue; then the one that holds a payment is paused past its lease, and the other makes it.
async fn doubled_and_paused(ground: &mut Ground<'_>) -> Result<()> {
    let stack = ground.stack;
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let beside = [("BURSAR_EXECUTION__SERVER__LISTEN", listen.as_str())];
    // A signer that does not answer, so that execution is surely in the midst of a payment when it is paused.
    stack.signal("signer-gateway", Signal::SIGSTOP)?;
    let held = ground.order(1).await?.remove(0);
    testkit::wait_for("it to be begun", PATIENCE, || async {
        let job = ground.job(&held).await;
        job.is_ok_and(|job| job.status() == ex::JobStatus::Processing && !job.attempts.is_empty())
    })
    .await;
    stack.signal("execution", Signal::SIGSTOP)?;
    stack.signal("signer-gateway", Signal::SIGCONT)?;
    stack.start_copy("execution", "execution beside", &beside)?;
    stack.serving_at("execution beside", &format!("http://{listen}")).await?;
    ground.customer.completed(&held.id, PATIENCE).await.context("the other execution takes over")?;
    stack.signal("execution", Signal::SIGCONT)?;
    stack.serving("execution").await?;
    let job = ground.job(&held).await?;
    ensure!(job.attempts.len() == 1, "the paused one's signature was not the only one: {job:?}");
    ground.pay(12).await.context("both side by side")?;
    let ended = stack.end("execution beside", Signal::SIGTERM)?.context("it is a child of this test")?;
    ensure!(ended.code() == Some(0), "the second execution ended with {ended}");
    Ok(())
}

/// Told to end under load, a service drains and ends well, and its successor goes on.
async fn replaced(ground: &mut Ground<'_>) -> Result<()> {
    let stack = ground.stack;
    for service in SERVICES {
        let to = stranger(&mut ground.dice);
        let first = ground.customer.order_to("tron", to, ("TRX", "1.25"), None).await?;
        ground.orders.push(first.clone());
        let customer = ground.customer.clone();
        ground
            .during(async {
                let ended = stack.end(service, Signal::SIGTERM)?.context("it is a child of this test")?;
                ensure!(ended.code() == Some(0), "{service} ended with {ended}:\n{}", stack.tail(service));
                stack.start_again(service, &[])?;
                customer.completed(&first.id, PATIENCE).await.map(drop)
            })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_are_doubled_paused_or_replaced_make_each_payment_once() -> Result<()> {
    let stack = quick_stack(LONG_MS).await?;
    for service in ["intent", "signer-gateway"] {
        stack.kill(service)?;
        stack.start_again(service, &[])?;
        stack.serving(service).await?;
    }
    let mut ground = Ground::of(&stack)?;
    doubled_and_paused(&mut ground).await.context("two executions")?;
    replaced(&mut ground).await.context("replaced")?;
    ground.judged().await
}

/// The database is restarted under load, in good order and not.
async fn database_restarted(ground: &mut Ground<'_>) -> Result<()> {
    let stack = ground.stack;
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let to = stranger(&mut ground.dice);
        let customer = ground.customer.clone();
        let order = ground
            .during(async {
                stack.end("postgres", signal)?;
                stack.start_again("postgres", &[])?;
                // Paid from end to end again before the next blow.
                let order = customer.order_to("tron", to, ("TRX", "1.25"), None).await?;
                customer.completed(&order.id, PATIENCE).await?;
                Ok(order)
            })
            .await?;
        ground.orders.push(order);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_restarts_or_has_no_room_costs_no_payment() -> Result<()> {
    let (disk, stack) = Disk::below_a_stack()?;
    let mut ground = Ground::of(&stack)?;
    database_restarted(&mut ground).await.context("restarts")?;
    stack.kill("signer-gateway")?;
    let waiting = ground.order(12).await?;
    let signed = disk.starve_the_signer(&stack).await?;
    ensure!(signed < 12.0, "all {signed} were signed on a full disk");
    disk.make_room(&stack)?;
    ground.customer.all_completed(&waiting).await.context("with room again")?;
    ground.judged().await
}

async fn workers(stack: &Stack) -> Result<Vec<(String, u32)>> {
    let mut client = WorkerServiceClient::new(stack.client("worker-control", "operator")?);
    let listed = client.list_workers(wc::ListWorkersRequest {}).await?.into_inner().workers;
    let named = listed.into_iter().filter_map(|worker| Some((worker.spec?.id, worker.pid)));
    Ok(named.filter(|(id, _)| id.ends_with("-tron")).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_orchestrator_starts_no_second_payer_and_a_successor_adopts_them() -> Result<()> {
    let stack = Stack::start_orchestrated()?;
    let mut ground = Ground::of(&stack)?;
    ground.pay(2).await?;
    let before = workers(&stack).await?;
    ensure!(before.len() >= 2, "the payer and the follower are workers: {before:?}");

    // It is refused the lock, so it ends and touches nobody.
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let beside = [("BURSAR_WORKER_CONTROL__SERVER__LISTEN", listen.as_str())];
    stack.start_copy("worker-control", "worker-control beside", &beside)?;
    let ended = || std::future::ready(stack.ended("worker-control beside").transpose());
    let ended = testkit::wait_for_value("the second one to give up", PATIENCE, ended).await?;
    ensure!(!ended.success(), "a second orchestrator ran beside the first");
    ensure!(workers(&stack).await? == before, "workers were touched");

    // Without any orchestrator payments go on; whoever comes next takes the same processes over.
    stack.kill("worker-control")?;
    ground.pay(4).await.context("without an orchestrator")?;
    stack.start_again("worker-control", &[])?;
    testkit::wait_for("the workers to be adopted", Duration::from_secs(120), || async {
        workers(&stack).await.is_ok_and(|now| now == before)
    })
    .await;
    ground.pay(2).await?;
    ground.judged().await
}
