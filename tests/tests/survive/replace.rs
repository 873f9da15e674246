//! Services are replaced while they work: ended by SIGTERM, and old and new side by side.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tests::payments::PATIENCE;

use crate::support::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_service_drains_ends_well_and_loses_nothing() -> Result<()> {
    let scene = Scene::new().await?;
    let services = ["intent", "execution", "signer-gateway", "confirmation"];
    for service in services {
        // The launcher's process is nobody's child any more, so that its exit code could not be seen.
        scene.stack.replace(service, &[])?;
    }
    for service in services {
        scene.stack.serving(service).await?;
    }
    let replacing = async {
        let mut orders = Vec::new();
        for service in services {
            let first = scene.customer.order("BNB", "0.001").await?;
            let status = scene.stack.end(service, Signal::SIGTERM)?.context("it is a child of this test")?;
            ensure!(
                status.code() == Some(0),
                "{service} ended with {status}:\n{}",
                scene.stack.tail(service)
            );
            scene.stack.start_again(service, &[])?;
            scene.customer.completed(&first.id, PATIENCE).await?;
            orders.push(first);
        }
        Ok(orders)
    };
    let paid = scene.pay_during(replacing).await?;
    scene.judged(&paid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_executions_on_one_database_pay_once_while_one_replaces_the_other() -> Result<()> {
    let scene = Scene::new().await?;
    scene.stack.replace("execution", &[])?;
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let replacing = async {
        let mut orders = Vec::new();
        for _ in 0..2 {
            let beside = [("BURSAR_EXECUTION__SERVER__LISTEN", listen.as_str())];
            scene.stack.start_copy("execution", "execution beside", &beside)?;
            scene.stack.serving_at("execution beside", &format!("http://{listen}")).await?;
            // Both claim from the same queue, and both deliver from the same outbox.
            let order = scene.customer.order("USDT", "1.25").await?;
            scene.customer.completed(&order.id, PATIENCE).await?;
            let old = scene.stack.end("execution", Signal::SIGTERM)?.context("it is a child of this test")?;
            ensure!(old.code() == Some(0), "execution ended with {old}");
            scene.stack.start_again("execution", &[])?;
            scene.stack.serving("execution").await?;
            let new =
                scene.stack.end("execution beside", Signal::SIGTERM)?.context("a child of this test")?;
            ensure!(new.code() == Some(0), "the second execution ended with {new}");
            orders.push(order);
        }
        Ok(orders)
    };
    let paid = scene.pay_during(replacing).await?;
    scene.judged(&paid).await
}
