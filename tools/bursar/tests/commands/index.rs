//! Sources, their progress and their events.

use serde_json::{Value, json};

use crate::stack::{Stack, lines};

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn commands(stack: &Stack) {
    assert_eq!(names(&stack.json(&["index", "sources"]), "name"), ["lifi-bsc", "usdt-bsc"]);
    assert!(stack.text(&["index", "sources"]).contains("FeesCollected"));
    let emitted = stack.json(&["index", "emit", "--amount", "77"]);
    assert_eq!(
        (&emitted["event"]["source"], &emitted["event"]["name"]),
        (&json!("lifi-bsc"), &json!("FeesCollected"))
    );
    assert!(emitted["block"].is_u64() && emitted["served_after_ms"].is_u64());
    assert_eq!(emitted["event"]["transaction_hash"], emitted["tx_hash"]);
    assert!(stack.text(&["index", "emit"]).contains("served after "));

    let events = stack.json(&["index", "events", "lifi-bsc", "--limit", "2"]);
    assert_eq!(names(&events, "name"), ["FeesCollected", "FeesCollected"]);
    assert_eq!(events[1], emitted["event"], "newest first");
    assert_eq!(stack.text(&["index", "events", "lifi-bsc", "--limit", "3"]).lines().count(), 4);

    let caught_up = ["index", "watch", "lifi-bsc", "--until-complete"];
    assert!(stack.text(&caught_up).lines().last().unwrap().contains("at the head"));
    let last = lines(&stack.text(&[&caught_up, ["--json"].as_slice()].concat())).pop().unwrap();
    assert_eq!((&last["source"], &last["lag_blocks"]), (&json!("lifi-bsc"), &json!("0")));
    let progress = stack.json(&["index", "progress", "lifi-bsc"]);
    assert_eq!(
        (names(&progress, "source"), &progress[0]["mode"]),
        (vec!["lifi-bsc".to_owned()], &json!("MODE_REALTIME"))
    );
    assert!(stack.text(&["index", "progress"]).lines().any(|line| line.starts_with("usdt-bsc ")));

    assert_eq!(stack.json(&["index", "requeue", "lifi-bsc"]), json!({ "requeued": 0 }));
    assert_eq!(stack.text(&["index", "requeue", "lifi-bsc"]), "0 requeued\n");
    addresses(stack);
}

/// A source over all contracts that keeps what concerns addresses of ours.
fn addresses(stack: &Stack) {
    let node = stack.url("bsc");
    let event = "Transfer(address indexed from, address indexed to, uint256 value)";
    let chain_id = stack.json(&["index", "sources"])[0]["chain_id"].as_str().unwrap().to_owned();
    let source = ["index", "add", "ours", "--chain-id", &chain_id, "--node", &node, "--event", event];
    let source = [source.as_slice(), &["--address-parameter", "to", "--paused"]].concat();
    assert_eq!(stack.json(&source)["address_parameters"], json!(["to"]));
    assert!(stack.text(&source).starts_with("ours is read from block"));
    let ours = ["1", "2"].map(|digit| format!("0x{}\n", digit.repeat(40)));
    std::fs::write(stack.path("ours.txt"), ours.concat()).unwrap();
    let added = stack.json(&["index", "addresses", "ours", "ours.txt"]);
    assert_eq!((&added["added"], &added["addresses"]), (&json!(2), &json!("2")));
    assert!(stack.text(&["index", "addresses", "ours", "ours.txt"]).starts_with("2 addresses; "));
}
