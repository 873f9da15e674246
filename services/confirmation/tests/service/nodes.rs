//! Nodes that lie, lag, or belong to another chain: a verdict waits, and says why.

use serde_json::{Value, json};
use testkit::{AnvilOptions, Fault, FaultProxy, Mining, Rule};

use crate::env::{DEPTH, Signed, TestEnv, account, native, stranger, tick, tick_until};

struct TwoNodes {
    env: TestEnv,
    second: FaultProxy,
}

impl TwoNodes {
    /// The same chain behind two addresses, of which the second can be made to lie.
    async fn new() -> Self {
        let mut env = TestEnv::new().await;
        let second = FaultProxy::http(env.chain.address()).await;
        let nodes = vec![env.chain.url(), second.url()];
        env.change_settings(|settings| settings.nodes = nodes).await;
        Self { env, second }
    }
}

#[tokio::test]
async fn a_node_without_the_receipt_delays_the_verdict_and_says_so() {
    let TwoNodes { env, second } = TwoNodes::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    second.rule(Rule::on("eth_getTransactionReceipt", Fault::RpcResult(Value::Null)));
    second.rule(Rule::on("eth_getTransactionByHash", Fault::RpcResult(Value::Null)));
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 5).await;
    for _ in 0..3 {
        tick(&mut replica).await;
    }
    assert_eq!(env.status(job).await, "included");
    assert!(env.kinds(job).await.is_empty());
    assert!(env.delayed(job).await.contains("disagree"), "{}", env.delayed(job).await);
    second.pass().await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
    assert_eq!(env.delayed(job).await, "");
}

#[tokio::test]
async fn a_node_with_another_final_block_delays_the_verdict() {
    let TwoNodes { env, second } = TwoNodes::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    tick(&mut replica).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    // The second node has other hashes at every height.
    let mut block = env.chain.call("eth_getBlockByNumber", json!(["latest", false])).await;
    block["hash"] = json!(format!("0x{}", "ab".repeat(32)));
    second.rule(Rule::on("eth_getBlockByNumber", Fault::RpcResult(block)));
    for _ in 0..3 {
        tick(&mut replica).await;
    }
    assert!(env.kinds(job).await.is_empty());
    assert_eq!(env.delayed(job).await, "nodes disagree on the final block");
    second.pass().await;
    tick(&mut replica).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
}

#[tokio::test]
async fn a_receipt_that_one_node_made_up_settles_nothing() {
    let TwoNodes { env, second } = TwoNodes::new().await;
    let mut replica = env.replica("one");
    let to = stranger();
    let never_sent = env.sign(0, to, 5, &[]).await;
    let block = env.chain.call("eth_getBlockByNumber", json!(["0x2", false])).await;
    let (transaction, receipt) = made_up(&never_sent, &block, &to.to_string());
    second.rule(Rule::on("eth_getTransactionByHash", Fault::RpcResult(transaction)));
    second.rule(Rule::on("eth_getTransactionReceipt", Fault::RpcResult(receipt)));
    let job = env.put(native(to, 5), vec![never_sent.watched()]).await;
    for _ in 0..5 {
        env.mine(5).await;
        tick(&mut replica).await;
    }
    assert!(env.kinds(job).await.is_empty());
    assert!(env.delayed(job).await.contains("disagree"), "{}", env.delayed(job).await);
    // Once the lie ends, the watch waits as before.
    second.pass().await;
    env.mine(1).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "waiting");
    assert_eq!(env.kinds(job).await, ["reopened"]);
}

fn made_up(signed: &Signed, block: &Value, to: &str) -> (Value, Value) {
    let from = account(0).to_string();
    let place = json!({
        "transactionIndex": "0x0", "blockHash": block["hash"], "blockNumber": block["number"], "from": from, "to": to,
    });
    let mut transaction = place.clone();
    let mut receipt = place;
    let hash = signed.hash.to_string();
    for (key, value) in json!({
        "hash": hash, "nonce": "0x0", "value": "0x5", "gas": "0x5208", "gasPrice": "0x1", "input": "0x", "type": "0x0",
    })
    .as_object()
    .unwrap()
    {
        transaction[key] = value.clone();
    }
    for (key, value) in json!({
        "transactionHash": hash, "status": "0x1", "gasUsed": "0x5208", "effectiveGasPrice": "0x1", "logs": [],
        "cumulativeGasUsed": "0x5208", "contractAddress": null, "type": "0x0",
    })
    .as_object()
    .unwrap()
    {
        receipt[key] = value.clone();
    }
    (transaction, receipt)
}

#[tokio::test]
async fn a_node_that_is_away_delays_the_verdict_and_shows() {
    let TwoNodes { env, second } = TwoNodes::new().await;
    let mut replica = env.replica("one");
    let (job, paid, to) = env.payment(0).await;
    tick(&mut replica).await;
    second.refuse().await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 5).await;
    let newer = env.sign(1, to, 6, &[]).await;
    let fresh = env.put(native(to, 6), vec![newer.watched()]).await;
    env.send(&newer).await;
    env.mine(1).await;
    for _ in 0..3 {
        tick(&mut replica).await;
    }
    for job in [job, fresh] {
        assert!(env.kinds(job).await.is_empty());
        let reason = env.delayed(job).await;
        assert!(reason.contains("1 of 2 nodes needed") && reason.contains(&second.url()), "{reason:?}");
    }
    let status = env.chains.statuses().await.unwrap().remove(0);
    let problems: Vec<&str> = status.nodes.iter().map(|node| node.problem.as_str()).collect();
    assert_eq!(problems.iter().filter(|problem| problem.is_empty()).count(), 1, "{problems:?}");
    second.pass().await;
    tick_until("the verdict", &mut replica, async || !env.kinds(job).await.is_empty()).await;
    assert_eq!(env.kinds(job).await, ["settled"]);
    assert_eq!((env.status(fresh).await, env.delayed(fresh).await), ("included", String::new()));
}

#[tokio::test]
async fn a_node_of_another_chain_is_refused_and_shown() {
    let mut env = TestEnv::new().await;
    let other = AnvilOptions { mining: Mining::Manual, chain_id: 97, ..AnvilOptions::default() };
    let other = testkit::anvil(other).await;
    let url = other.url();
    env.change_settings(|settings| settings.nodes.push(url)).await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(u64::from(DEPTH) + 1).await;
    tick(&mut replica).await;
    let status = env.chains.statuses().await.unwrap().remove(0);
    let wrong = status.nodes.iter().find(|node| node.node == other.url()).unwrap();
    assert!(wrong.problem.contains("97"), "{}", wrong.problem);
    assert!(status.problem().unwrap().contains("97"));
    assert!(env.kinds(job).await.is_empty(), "two nodes are configured, so one alone decides nothing");
}

#[tokio::test]
async fn a_node_on_a_chain_of_its_own_halts_nothing() {
    let mut env = TestEnv::new().await;
    let mut replica = env.replica("one");
    let (job, paid, _) = env.payment(0).await;
    env.send(&paid).await;
    env.mine(2).await;
    tick(&mut replica).await;
    assert_eq!(env.status(job).await, "included");
    drop(replica);
    // The same id, other blocks, and more of them, so that it is the one that is followed.
    let stray = testkit::anvil(AnvilOptions { mining: Mining::Manual, ..AnvilOptions::default() }).await;
    stray.mine(env.height().await + 100).await;
    let url = stray.url();
    env.change_settings(|settings| settings.nodes.push(url)).await;
    let mut replica = env.replica("one");
    env.mine(u64::from(DEPTH)).await;
    for _ in 0..3 {
        tick(&mut replica).await;
        assert_eq!(env.halted().await, None);
        // Where both chains began in the same second their first block is the same, and the stray looks like a reorganisation,
        // which is reported and decides nothing.
        let kinds = env.kinds(job).await;
        assert!(kinds.iter().all(|kind| *kind == "reopened"), "{kinds:?}");
    }
    env.change_settings(|settings| {
        settings.nodes.pop();
    })
    .await;
    let mut replica = env.replica("one");
    tick_until("the verdict", &mut replica, async || env.kinds(job).await.last() == Some(&"settled")).await;
}
