//! Servers that no payment needs.

use anyhow::{Result, ensure};
use tests::judge::judge;

use crate::support::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_go_on_while_redis_and_mongodb_are_away() -> Result<()> {
    let scene = Scene::new().await?;
    for server in ["redis", "mongodb"] {
        scene.stack.kill(server)?;
    }
    // Also by services that start while they are away.
    for service in ["signer-gateway", "confirmation", "execution", "intent"] {
        scene.stack.replace(service, &[])?;
    }
    let orders = scene.customer.order_some(8).await?;
    scene.customer.all_completed(&orders).await?;
    for server in ["redis", "mongodb"] {
        let address = scene.stack.part(server)?.url;
        let address = address.rsplit("//").next().unwrap_or_default().split('/').next().unwrap_or_default();
        let address = address.rsplit('@').next().unwrap_or_default().to_owned();
        ensure!(tokio::net::TcpStream::connect(&address).await.is_err(), "{server} was there all the time");
    }
    judge(&scene.stack, &scene.customer, &orders).await?;
    for server in ["redis", "mongodb"] {
        scene.stack.start_again(server, &[])?;
    }
    scene.done();
    Ok(())
}
