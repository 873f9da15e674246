//! A test process that is killed leaves no server and no directory behind.
//!
//! The test runs itself a second time as the victim: the child starts every server, says so, and waits to be killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{AnvilOptions, wait_for};

const VICTIM: &str = "BURSAR_TESTKIT_VICTIM";

#[tokio::test]
async fn a_killed_test_process_leaves_nothing_behind() {
    if std::env::var_os(VICTIM).is_some() {
        return be_the_victim().await;
    }
    let scratch = testkit::scratch_dir();
    // The servers' user must be able to enter it, as it can enter the usual temporary directory.
    Command::new("chmod").arg("1777").arg(scratch.path()).status().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_test_process_leaves_nothing_behind", "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", scratch.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    lines
        .map_while(Result::ok)
        .find(|line| line.contains("victim is ready"))
        .expect("the victim started everything");
    // By command line, not by pid: what counts is that nothing at all runs on that directory.
    let marker = scratch.path().display().to_string();
    assert!(
        running_on(&marker).len() >= 4,
        "PostgreSQL, MongoDB, Redis and anvil run: {:?}",
        running_on(&marker)
    );
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_for("every server and directory to be gone", Duration::from_secs(30), || async {
        running_on(&marker).is_empty() && directories(scratch.path()) == 0
    })
    .await;
}

async fn be_the_victim() {
    let postgres = testkit::postgres().await;
    let mongo = testkit::mongo().await;
    let redis = testkit::redis().await;
    let chain = testkit::anvil(AnvilOptions::default()).await;
    let urls = [postgres.url(), mongo.url(), redis.url(), &chain.url()].join(" ");
    std::io::stdout().write_all(format!("victim is ready {urls}\n").as_bytes()).unwrap();
    std::future::pending::<()>().await;
}

/// Command lines that name the directory, and processes that run in it (anvil gets no argument with it).
fn running_on(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if devstack::Identity::of(pid).is_none() {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let working_dir = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if line.contains(marker) || working_dir.starts_with(marker) {
            found.push(line);
        }
    }
    found
}

/// What servers left, apart from the template that is kept on purpose.
fn directories(root: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(root).unwrap().flatten();
    entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with("bursar-testkit-")).count()
}
