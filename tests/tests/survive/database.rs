//! The database of all services goes away and comes back.

use anyhow::Result;
use futures::future::try_join_all;
use nix::sys::signal::Signal;
use tests::payments::PATIENCE;

use crate::support::Scene;

const SERVICES: [&str; 4] = ["intent", "execution", "signer-gateway", "confirmation"];

/// Fast shutdown breaks every transaction off; immediate is a crash whose log is replayed at the start.
const RESTARTS: [Signal; 4] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGINT, Signal::SIGQUIT];

#[tokio::test(flavor = "multi_thread")]
async fn a_database_restarted_under_load_loses_and_doubles_nothing() -> Result<()> {
    let scene = Scene::new().await?;
    let restarting = async {
        let mut orders = Vec::new();
        for signal in RESTARTS {
            scene.stack.end("postgres", signal)?;
            scene.stack.start_again("postgres", &[])?;
            // Paid from end to end again before the next blow.
            let order = scene.customer.order("BNB", "0.001").await?;
            scene.customer.completed(&order.id, PATIENCE).await?;
            orders.push(order);
        }
        Ok(orders)
    };
    let paid = scene.pay_during(restarting).await?;
    scene.judged(&paid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_whose_acknowledgement_is_lost_are_not_done_twice() -> Result<()> {
    let scene = Scene::new().await?;
    let mut proxies = Vec::new();
    for (service, database) in SERVICES.into_iter().zip(["intent", "execution", "signer", "confirmation"]) {
        proxies.push((service, scene.stack.database_through(service, database).await?));
    }
    try_join_all(SERVICES.map(|service| scene.stack.serving(service))).await?;
    let losing = async {
        for (service, proxy) in &proxies {
            // What was sent arrives and is done; the connection breaks instead of bringing the answer.
            proxy.lose_replies().await;
            scene.stack.ready(service, false).await?;
            proxy.pass().await;
            scene.stack.ready(service, true).await?;
        }
        Ok(Vec::new())
    };
    let paid = scene.pay_during(losing).await?;
    scene.judged(&paid).await
}
