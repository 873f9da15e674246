//! Every command against a seeded stack, as text and as JSON: what it prints, with which keys and values, and how it ends.
//!
//! One stack for all of it. The services' programs lie beside `bursar` (`cargo build --workspace --bins`, as `make test` does).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod index;
mod money;
mod signer;
mod stack;
mod workers;

use serde_json::json;
use stack::{Running, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn every_command_prints_text_or_json_and_ends_as_it_should() {
    let stack = Stack::start();
    // What waits for blocks runs beside the rest.
    let imported = money::import(&stack).await;
    let demo = Running::start(&stack, &["demo"]);
    let demo_json = Running::start(&stack, &["demo", "--json"]);
    let watched = Running::start(&stack, &["withdraw", "watch", &imported]);
    let watched_json = Running::start(&stack, &["withdraw", "watch", &imported, "--json"]);

    money::requests(&stack);
    money::jobs(&stack).await;
    money::wallets(&stack);
    signer::commands(&stack);
    index::commands(&stack).await;
    workers::commands(&stack).await;
    status_and_logs(&stack);
    mistakes(&stack);

    money::paid(&demo.ended(), &demo_json.ended());
    money::taken_over(&stack, &imported, &watched.ended(), &watched_json.ended());
    restarts(&stack).await;
}

fn status_and_logs(stack: &Stack) {
    assert!(
        stack.text(&["status"]).lines().any(|line| line.starts_with("intent ") && line.contains("serving"))
    );
    let parts = stack.json(&["status"])["parts"].take();
    for part in
        ["intent", "execution", "confirmation", "signer-gateway", "indexer", "worker-control", "postgres"]
    {
        assert_eq!(
            (&parts[part]["health"], &parts[part]["detail"]),
            (&json!("serving"), &json!("")),
            "{part}"
        );
        assert!(
            parts[part]["pid"].is_u64() && parts[part]["url"].is_string() && parts[part]["kind"].is_string()
        );
    }
    assert!(!stack.text(&["logs", "intent", "-n", "3"]).is_empty());
    assert!(stack.refused(&["logs", "nobody"]).contains("no log of `nobody`"));
}

/// One line that says what is wrong, whether or not JSON was asked for, and an exit code that scripts notice.
fn mistakes(stack: &Stack) {
    let unknown = "0190a5d0-0000-7000-8000-000000000000";
    let amount = |amount| money::create_words(amount, "USDT");
    for (words, why) in [
        (vec!["withdraw", "get", unknown], "NotFound"),
        (vec!["withdraw", "get", "seven"], "id"),
        (vec!["withdraw", "watch", unknown], "NotFound"),
        (vec!["withdraw", "cancel", unknown], "NotFound"),
        (vec!["withdraw", "reject", unknown, "--reason", "no"], "NotFound"),
        (vec!["withdraw", "approve", unknown], "NotFound"),
        (vec!["withdraw", "list", "--status", "lost"], "--status lost: expected pending"),
        (amount("1e3"), "amount"),
        (amount("-1"), "amount"),
        (amount("0.0000000000000000001"), "19 digits after the decimal point"),
        (money::create_words("1", "DOGE"), "DOGE"),
        (vec!["job", "show", unknown], "NotFound"),
        (vec!["job", "retry", unknown], "NotFound"),
        (vec!["job", "cancel", unknown, "--reason", "no"], "NotFound"),
        (vec!["job", "list", "--status", "lost"], "--status lost: expected pending"),
        (vec!["worker", "show", "nobody"], "nobody"),
        (vec!["worker", "stop", "nobody"], "nobody"),
        (vec!["index", "events", "nobody"], "nobody"),
        (vec!["index", "requeue", "lifi-bsc", "7"], "begins at block 7"),
        (vec!["import", "nobody.jsonl"], "cannot read nobody.jsonl"),
        (vec!["up", "--restart", "nobody"], "its services are confirmation, execution"),
        (vec!["up", "--restart", "intent", "--data", "nowhere"], "no stack runs in nowhere"),
        (vec!["status", "--intent", "http://127.0.0.1:1", "--data", "/nonexistent"], "no stack runs in"),
    ] {
        assert!(stack.refused(&words).contains(why), "bursar {words:?} does not say `{why}`");
    }
    assert!(!stack.path("nowhere").exists(), "looking for a stack makes none");
    // An address that is not written in stack.json may be anybody's, and is not sent a key of this stack.
    let named = stack.url("intent").replace("127.0.0.1", "localhost");
    assert!(stack.refused(&["withdraw", "list", "--intent", &named]).contains("Unauthenticated"));
    stack.text(&["withdraw", "list", "--intent", &stack.url("intent")]);
}

/// What follows a service goes on when that starts again.
async fn restarts(stack: &Stack) {
    let workers = Running::start(stack, &["worker", "watch", "--json"]);
    let sources = Running::start(stack, &["index", "watch", "--json"]);
    let events = Running::start(stack, &["index", "follow", "lifi-bsc", "--from-block", "1"]);
    workers.prints_more_than(0, "workers").await;
    sources.prints_more_than(0, "progress").await;
    events.prints_more_than(0, "events").await;
    for service in ["worker-control", "indexer"] {
        stack.text(&["up", "--restart", service]);
    }
    let before = [&workers, &sources, &events].map(Running::count);
    stack.text(&["worker", "restart", "confirmation-tron"]);
    let emitted = stack.json(&["index", "emit"]);
    workers.prints_more_than(before[0], "workers after the restart").await;
    sources.prints_more_than(before[1], "progress after the restart").await;
    events.prints_more_than(before[2], "an event after the restart").await;
    assert!(events.last_line().contains(emitted["tx_hash"].as_str().unwrap()));
    let line = |running: &Running| serde_json::from_str::<serde_json::Value>(&running.last_line()).unwrap();
    assert!(line(&workers)["spec"]["id"].is_string() && line(&sources)["complete_to_block"].is_string());
}
