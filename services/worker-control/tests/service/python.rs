//! A worker in another language is supervised like the rest. It uses redis-py and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use fred::prelude::PubsubInterface as _;
use nix::sys::signal::Signal;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;

use crate::kit::{PATIENCE, TestFleet, alive, signal};

const REDIS_PY: &str = "redis==7.1.0";

/// Where clones keep what they download, outside of all of them; `scripts/install-tools` uses the same fleet.
fn tools() -> PathBuf {
    if let Some(tools) = std::env::var_os("BURSAR_TOOLS") {
        return tools.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Path::new(&std::env::var_os("HOME").expect("HOME is set")).join(".cache");
    cache.unwrap_or_else(home).join("bursar/tools")
}

/// The folder with redis-py in it. Installed beside its fleet and moved there whole, since tests run side by side.
fn redis_py() -> PathBuf {
    let folder = tools().join("python").join(REDIS_PY);
    if !folder.is_dir() {
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let draft = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
        let pip = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
            .arg(draft.path())
            .arg(REDIS_PY)
            .output()
            .expect("python3 is installed");
        assert!(pip.status.success(), "{}", String::from_utf8_lossy(&pip.stderr));
        // Somebody else may have been quicker.
        let _ = std::fs::rename(draft.keep(), &folder);
    }
    folder
}

/// The entry of the worker file.
async fn entry() -> String {
    let folder = tokio::task::spawn_blocking(redis_py).await.unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/worker.py");
    format!(
        "[[workers]]\nid = 'py'\ncommand = ['python3', '{script}']\ninterval_sec = 0.05\n\
         environment = {{ PYTHONPATH = '{}' }}\n",
        folder.display()
    )
}

#[tokio::test]
async fn workers_that_shall_not_outlive_the_orchestrator_stop_when_it_is_killed() {
    let mut fleet = TestFleet::new().await;
    fleet.orchestrator.insert("orphans", "'exit'".to_owned());
    fleet.workers(&entry().await);
    let mut first = fleet.start("first").await;
    let worker = first.runs("py").await;
    first.kill();
    wait_for("the worker to stop", PATIENCE, || async { !alive(worker.pid) }).await;
    let lock = fleet.text(fleet.keys.lock(&"py".parse().unwrap())).await;
    assert_eq!(lock, None, "a stop in order gives the lock back");
}

#[tokio::test]
async fn a_worker_in_python_keeps_the_keys_and_is_looked_after_like_any_other() {
    let fleet = TestFleet::new().await;
    fleet.workers(&entry().await);
    let mut first = fleet.start("first").await;
    let before = first.runs("py").await;
    let worker = first.worker_is("py", "counting", |worker| {
        let state: serde_json::Value = serde_json::from_str(&worker.state_json).unwrap_or_default();
        state["epoch"].as_u64().is_some_and(|epoch| epoch > 2) && state["language"] == "python"
    });
    assert_eq!(worker.await.pid, before.pid);
    first.says("working as").await;

    // It crashes: its lock is freed, and it comes back as another incarnation.
    signal(before.pid, Signal::SIGKILL);
    let after = first
        .worker_is("py", "back", |w| w.pid != 0 && w.pid != before.pid && w.status() == WorkerStatus::Running)
        .await;
    assert_ne!(after.incarnation, before.incarnation);

    // It is told to restart on the control channel by somebody else, and comes back without backoff.
    let client = fleet.client().await;
    let told = async || {
        let message = r#"{"type":"RESTART","pairId":"py"}"#;
        client.publish::<i64, _, _>(fleet.keys.control(), message).await.unwrap()
    };
    wait_for("it to listen", PATIENCE, || async { told().await == 1 }).await;
    let again = first
        .worker_is("py", "restarted", |w| {
            w.pid != 0 && w.pid != after.pid && w.status() == WorkerStatus::Running
        })
        .await;
    assert_eq!(again.failures, 0);
    first.stop().await;
    assert_eq!(fleet.text(fleet.keys.lock(&"py".parse().unwrap())).await, None);
}
