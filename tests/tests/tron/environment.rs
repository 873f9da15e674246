//! What payments depend on: clocks, servers that no payment needs, the orchestrator, and the services themselves, doubled,
//! paused and replaced.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use proto::execution::v1 as execution_pb;
use proto::workercontrol::v1 as worker_control_pb;
use proto::workercontrol::v1::worker_service_client::WorkerServiceClient;
use tests::clock::{WrongClock, check_off};
use tests::disk::Disk;
use tests::payments::PATIENCE;
use tests::stack::Stack;

use crate::support::{LONG_MS, Scene, quick_stack, stranger};

const SERVICES: [&str; 4] = ["intent", "execution", "signer-gateway", "confirmation"];

/// Clocks that differ by two hours between services: windows are counted by blocks, so none closes early or is waited for.
async fn wrong_clocks(scene: &mut Scene) -> Result<()> {
    let (clock, stack) = (WrongClock::new()?, Arc::clone(&scene.stack));
    let wrong = SERVICES.into_iter().zip([("+3600s", 60), ("-3600s", -60)].into_iter().cycle());
    for (service, (offset, _)) in wrong.clone() {
        stack.replace(service, &clock.environment(offset))?;
    }
    for (service, (_, minutes)) in wrong {
        stack.serving(service).await?;
        check_off(&stack, service, minutes)?;
    }
    for order in scene.pay(6).await? {
        let job = scene.job(&order).await?;
        ensure!(job.attempts.len() == 1, "a wrong clock cost a signature: {job:?}");
    }
    stack.restore()
}

/// No payment needs Redis or MongoDB, not even of services that start while these are away.
async fn bystanders_away(scene: &mut Scene) -> Result<()> {
    let stack = Arc::clone(&scene.stack);
    for server in ["redis", "mongodb"] {
        stack.kill(server)?;
    }
    for service in SERVICES {
        stack.replace(service, &[])?;
    }
    scene.pay(4).await?;
    for server in ["redis", "mongodb"] {
        stack.start_again(server, &[])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_payments_stand_on_goes_away_and_each_is_made_once() -> Result<()> {
    let stack = quick_stack(LONG_MS).await?;
    let mut scene = Scene::new(stack, 23).await?;
    wrong_clocks(&mut scene).await.context("clocks")?;
    bystanders_away(&mut scene).await.context("Redis and MongoDB")?;
    scene.judged().await
}

/// Two executions claim from one queue; then the one that holds a payment is paused past its lease, and the other makes it.
async fn doubled_and_paused(scene: &mut Scene) -> Result<()> {
    let stack = Arc::clone(&scene.stack);
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let beside = [("BURSAR_EXECUTION__SERVER__LISTEN", listen.as_str())];
    // A signer that does not answer, so that execution is surely in the midst of a payment when it is paused.
    stack.signal("signer-gateway", Signal::SIGSTOP)?;
    let held = scene.order(1).await?.remove(0);
    testkit::wait_for("it to be begun", PATIENCE, || async {
        let job = scene.job(&held).await;
        job.is_ok_and(|job| job.status() == execution_pb::JobStatus::Processing && !job.attempts.is_empty())
    })
    .await;
    stack.signal("execution", Signal::SIGSTOP)?;
    stack.signal("signer-gateway", Signal::SIGCONT)?;
    stack.start_copy("execution", "execution beside", &beside)?;
    stack.serving_at("execution beside", &format!("http://{listen}")).await?;
    scene.customer.completed(&held.id, PATIENCE).await.context("the other execution takes over")?;
    stack.signal("execution", Signal::SIGCONT)?;
    stack.serving("execution").await?;
    let job = scene.job(&held).await?;
    ensure!(job.attempts.len() == 1, "the paused one's signature was not the only one: {job:?}");
    scene.pay(12).await.context("both side by side")?;
    let ended = stack.end("execution beside", Signal::SIGTERM)?.context("it is a child of this test")?;
    ensure!(ended.code() == Some(0), "the second execution ended with {ended}");
    Ok(())
}

/// A service that gets SIGTERM under load drains and ends well, and its successor goes on.
async fn replaced(scene: &mut Scene) -> Result<()> {
    let stack = Arc::clone(&scene.stack);
    for service in SERVICES {
        let first = scene.order_one("TRX", "1.25").await?;
        let customer = scene.customer.clone();
        scene
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
    let mut scene = Scene::new(stack, 23).await?;
    doubled_and_paused(&mut scene).await.context("two executions")?;
    replaced(&mut scene).await.context("replaced")?;
    scene.judged().await
}

/// The database is restarted under load, in good order and not.
async fn database_restarted(scene: &mut Scene) -> Result<()> {
    let stack = Arc::clone(&scene.stack);
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let to = stranger(&mut scene.dice);
        let customer = scene.customer.clone();
        let order = scene
            .during(async {
                stack.end("postgres", signal)?;
                stack.start_again("postgres", &[])?;
                // Paid from end to end again before the next blow.
                let order = customer.order_to("tron", to, ("TRX", "1.25"), None).await?;
                customer.completed(&order.id, PATIENCE).await?;
                Ok(order)
            })
            .await?;
        scene.orders.push(order);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_restarts_or_has_no_room_costs_no_payment() -> Result<()> {
    let (disk, stack) = Disk::below_a_stack()?;
    let mut scene = Scene::new(stack, 23).await?;
    database_restarted(&mut scene).await.context("restarts")?;
    scene.stack.kill("signer-gateway")?;
    let waiting = scene.order(12).await?;
    let signed = disk.starve_the_signer(&scene.stack).await?;
    ensure!(signed < 12.0, "all {signed} were signed on a full disk");
    disk.make_room(&scene.stack)?;
    scene.customer.all_completed(&waiting).await.context("with room again")?;
    scene.judged().await
}

async fn workers(stack: &Stack) -> Result<Vec<(String, u32)>> {
    let mut client = WorkerServiceClient::new(stack.client("worker-control", "operator")?);
    let listed = client.list_workers(worker_control_pb::ListWorkersRequest {}).await?.into_inner().workers;
    let named = listed.into_iter().filter_map(|worker| Some((worker.spec?.id, worker.pid)));
    Ok(named.filter(|(id, _)| id.ends_with("-tron")).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_orchestrator_starts_no_second_payer_and_a_successor_adopts_them() -> Result<()> {
    let stack = Stack::start_orchestrated()?;
    let mut scene = Scene::new(stack, 23).await?;
    let stack = Arc::clone(&scene.stack);
    scene.pay(2).await?;
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
    scene.pay(4).await.context("without an orchestrator")?;
    stack.start_again("worker-control", &[])?;
    testkit::wait_for("the workers to be adopted", Duration::from_secs(120), || async {
        workers(&stack).await.is_ok_and(|now| now == before)
    })
    .await;
    scene.pay(2).await?;
    scene.judged().await
}
