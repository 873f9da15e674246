//! One trace from the customer's request to the verdict.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::judge::judge;
use tests::payments::PATIENCE;

use crate::support::Scene;

const LOGGED: &[(&str, &[&str])] = &[
    (
        "intent",
        &["withdrawal requested", "withdrawal approved by one", "handed to execution", "withdrawal changed"],
    ),
    ("execution", &["answered"]),
    ("signer-gateway", &["answered"]),
    ("confirmation", &["watching", "verdict"]),
];

/// The messages of a log's lines that belong to a trace.
fn lines_of(log: &std::path::Path, trace: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["trace_id"] == trace)
        .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_request_to_the_verdict_through_all_four_services() -> Result<()> {
    let scene = Scene::new().await?;
    for (service, _) in LOGGED {
        scene.stack.replace(service, &[("RUST_LOG", "info,rpc=debug")])?;
        scene.stack.serving(service).await?;
    }
    let trace = hex::encode(rand::random::<[u8; 16]>());
    let parent = format!("00-{trace}-{}-01", hex::encode(rand::random::<[u8; 8]>()));
    let order = scene.customer.order_traced("USDT", "1.25", Some(&parent)).await?;
    let other = scene.customer.order("BNB", "0.001").await?;
    scene.customer.completed(&order.id, PATIENCE).await?;
    scene.customer.completed(&other.id, PATIENCE).await?;
    judge(&scene.stack, &scene.customer, &[order, other]).await?;
    let mut logged: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (service, _) in LOGGED {
        logged.insert(service, lines_of(&scene.stack.part(service)?.log, &trace));
    }
    for (service, messages) in LOGGED {
        for message in *messages {
            let is_logged = logged[service].iter().any(|line| line == message);
            ensure!(is_logged, "{service} did not log {message:?}: {logged:#?}");
        }
    }
    scene.done();
    Ok(())
}
