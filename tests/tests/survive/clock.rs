//! Machines whose clocks are wrong. Leases, expiries and due times are the database's, so nobody notices.

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use tests::judge::judge;
use tests::load::{BOTH, under_load};
use tests::payments::PATIENCE;

use crate::support::{PACE, Scene};

/// `libfaketime` of Debian's package `faketime`, which `scripts/install-tools test` installs.
fn library() -> Result<String> {
    let places = std::fs::read_dir("/usr/lib").context("cannot look for libfaketime")?;
    let mut places = places.flatten().map(|place| place.path().join("faketime/libfaketime.so.1"));
    let found = places.find(|file| file.exists());
    let found = found.context("libfaketime is not installed; `scripts/install-tools test` installs it")?;
    Ok(found.display().to_string())
}

/// Starts a service whose clock is off by so much.
fn environment<'a>(library: &'a str, offset: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut environment = vec![("LD_PRELOAD", library), ("FAKETIME", offset)];
    // Only the time of day is wrong: a clock that is set back does not stop timers.
    environment.extend([("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")]);
    environment
}

/// How far the last line of a service's log is from our clock, in minutes.
fn minutes_off(log: &std::path::Path) -> Result<i64> {
    let text = std::fs::read_to_string(log)?;
    let line = text.lines().rev().find(|line| line.starts_with("{\"timestamp\"")).context("no log line")?;
    let line: serde_json::Value = serde_json::from_str(line)?;
    let at: DateTime<Utc> = line["timestamp"].as_str().context("a line has a time")?.parse()?;
    Ok((at - Utc::now()).num_minutes())
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_are_an_hour_off_change_nothing() -> Result<()> {
    let library = library()?;
    let scene = Scene::new().await?;
    let wrong = [
        ("intent", "+3600s", 60),
        ("execution", "-3600s", -60),
        ("signer-gateway", "+3600s", 60),
        ("confirmation", "-3600s", -60),
    ];
    for (service, offset, _) in wrong {
        scene.stack.end(service, Signal::SIGTERM)?;
        scene.stack.start_again(service, &environment(&library, offset))?;
    }
    for (service, _, minutes) in wrong {
        scene.stack.serving(service).await?;
        let off = minutes_off(&scene.stack.part(service)?.log)?;
        ensure!((off - minutes).abs() <= 5, "{service} is off by {off} minutes and not {minutes}");
    }
    // A second execution whose clock is two hours ahead of the first: neither may think that the other's leases are over.
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let mut ahead = environment(&library, "+3600s");
    ahead.push(("BURSAR_EXECUTION__SERVER__LISTEN", &listen));
    scene.stack.start_copy("execution", "execution ahead", &ahead)?;
    scene.stack.serving_at("execution ahead", &format!("http://{listen}")).await?;
    let working = async {
        for _ in 0..3 {
            let order = scene.customer.order("USDT", "1.25").await?;
            scene.customer.completed(&order.id, PATIENCE).await?;
        }
        Ok(())
    };
    let ((), paid) = under_load(&scene.customer, BOTH, PACE, working).await?;
    scene.customer.all_completed(&paid).await?;
    judge(&scene.stack, &scene.customer, &paid).await?;
    for order in &paid {
        let job = scene.job(order).await?;
        ensure!(job.tries <= 1 && job.attempts.len() == 1, "{} took {} attempts", job.id, job.attempts.len());
    }
    scene.done();
    Ok(())
}
