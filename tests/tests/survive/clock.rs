//! Machines whose clocks are wrong. Leases, expiries and due times are the database's, so nobody notices.

use anyhow::{Result, ensure};
use tests::clock::{WrongClock, check_off};
use tests::judge::judge;
use tests::payments::PATIENCE;

use crate::support::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_are_an_hour_off_change_nothing() -> Result<()> {
    let clock = WrongClock::new()?;
    let scene = Scene::new().await?;
    scene.never_raise().await?;
    let wrong = [
        ("intent", "+3600s", 60),
        ("execution", "-3600s", -60),
        ("signer-gateway", "+3600s", 60),
        ("confirmation", "-3600s", -60),
    ];
    for (service, offset, _) in wrong {
        scene.stack.replace(service, &clock.environment(offset))?;
    }
    for (service, _, minutes) in wrong {
        scene.stack.serving(service).await?;
        check_off(&scene.stack, service, minutes)?;
    }
    // A second execution whose clock is two hours ahead of the first: neither may think that the other's leases are over.
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let mut ahead = clock.environment("+3600s");
    ahead.push(("BURSAR_EXECUTION__SERVER__LISTEN", &listen));
    scene.stack.start_copy("execution", "execution ahead", &ahead)?;
    scene.stack.serving_at("execution ahead", &format!("http://{listen}")).await?;
    let working = async {
        let mut orders = Vec::new();
        for _ in 0..3 {
            let order = scene.customer.order("USDT", "1.25").await?;
            scene.customer.completed(&order.id, PATIENCE).await?;
            orders.push(order);
        }
        Ok(orders)
    };
    let paid = scene.pay_during(working).await?;
    judge(&scene.stack, &scene.customer, &paid).await?;
    for order in &paid {
        let job = scene.job(order).await?;
        ensure!(job.tries <= 1 && job.attempts.len() == 1, "{} took {} attempts", job.id, job.attempts.len());
    }
    scene.done();
    Ok(())
}
