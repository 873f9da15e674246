//! Workers under the orchestrator.

use serde_json::{Value, json};
use testkit::wait_for;

use crate::stack::{PATIENCE, Stack, field};

const WORKER: &str = "indexer";

pub(crate) async fn commands(stack: &Stack) {
    let listed = stack.json(&["worker", "list"]);
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|worker| worker["spec"]["id"].clone()).collect();
    let workers =
        "confirmation-bsc confirmation-tron execution-withdrawal-bsc execution-withdrawal-tron indexer";
    for id in workers.split(' ') {
        assert!(ids.contains(&json!(id)), "{id} is not in {ids:?}");
    }
    assert!(stack.text(&["worker", "list"]).lines().any(|line| line.starts_with("confirmation-bsc ")));
    runs(stack).await;
    let before = show(stack);
    assert!(before["pid"].as_u64().unwrap() > 0 && before["incarnation"].is_string());
    assert_eq!(field(&stack.text(&["worker", "show", WORKER]), "status"), "running");

    assert_eq!(stack.json(&["worker", "restart", WORKER])["spec"]["id"], WORKER);
    wait_for("another process of the worker", PATIENCE, || async {
        show(stack)["pid"] != before["pid"] && show(stack)["status"] == "WORKER_STATUS_RUNNING"
    })
    .await;
    assert_eq!(field(&stack.text(&["worker", "stop", WORKER]), "worker"), WORKER);
    wait_for("the worker to stop", PATIENCE, || async { show(stack)["status"] == "WORKER_STATUS_STOPPED" })
        .await;
    assert_eq!(stack.json(&["worker", "stop", WORKER])["status"], "WORKER_STATUS_STOPPED");
    assert_eq!(stack.json(&["worker", "start", WORKER])["spec"]["id"], WORKER);
    runs(stack).await;
    assert_eq!(stack.json(&["worker", "reload"]), json!({ "added": [], "removed": [], "changed": [] }));
    assert_eq!(field(&stack.text(&["worker", "reload"]), "added"), "none");
}

fn show(stack: &Stack) -> Value {
    stack.json(&["worker", "show", WORKER])
}

async fn runs(stack: &Stack) {
    let running = || async { show(stack)["status"] == "WORKER_STATUS_RUNNING" };
    wait_for("the worker to run", PATIENCE, running).await;
}
