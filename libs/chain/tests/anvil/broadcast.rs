//! Sending: what a real node answers, and what is made of no answer.

use std::time::{Duration, Instant};

use chain::{Advice, BroadcastOutcome, ChainEdge as _, Pricing, Seen, TransientCause, TxStatus};
use payment::GasFee;
use serde_json::json;
use testkit::{FaultProxy, Hold, Rule, Upset};

use crate::kit::{
    CHAIN_ID, FEE, GWEI, Wallet, balance, edge, label, node, receiver, seen, standing, two_nodes,
};

const SEND: &str = "eth_sendRawTransaction";

#[tokio::test]
async fn the_same_bytes_are_known_while_pending_and_too_low_once_mined() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 1).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x51, FEE);

    assert_eq!(seen(&edge, claim.hash).await, Seen::Nowhere);
    let first = edge.broadcast(std::slice::from_ref(&raw)).await.remove(0);
    assert_eq!((first.hash, label(&first)), (claim.hash, "accepted"));
    assert_eq!(seen(&edge, claim.hash).await, Seen::Pending);

    let again = edge.broadcast(std::slice::from_ref(&raw)).await.remove(0);
    assert_eq!(again.merged, BroadcastOutcome::AlreadyKnown);
    assert_eq!(again.merged.advice(), Advice::Watch);

    node.mine(3).await;
    let mined = edge.broadcast(&[raw]).await.remove(0);
    assert_eq!((label(&mined), mined.merged.advice()), ("nonce_too_low", Advice::LookUp));
    assert!(matches!(seen(&edge, claim.hash).await, Seen::Included(_)));
    assert_eq!(balance(&node, &receiver(0x51)).await, 1);
}

#[tokio::test]
async fn a_replacement_must_pay_more_and_then_only_one_lands() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 2).await;
    let (first, first_claim) = wallet.native(&edge, 0, 0x52, FEE);
    let cheaper = GasFee::Dynamic { max_fee: 20 * GWEI - 1, max_priority: 2 * GWEI - 1 };
    let (cheap, _) = wallet.native(&edge, 0, 0x52, cheaper);
    let price = payment::Price::Gas { limit: 120_000, fee: FEE };
    let Some(payment::Price::Gas { fee: bumped, .. }) = edge.bump(&price, None).map(|quote| quote.price)
    else {
        panic!("below the cap")
    };
    let (second, second_claim) = wallet.native(&edge, 0, 0x52, bumped);

    assert_eq!(label(&edge.broadcast(&[first]).await[0]), "accepted");
    let refused = edge.broadcast(&[cheap]).await.remove(0).merged;
    assert_eq!(refused, BroadcastOutcome::Underpriced(Pricing::Replacement));
    assert_eq!(label(&edge.broadcast(&[second]).await[0]), "accepted");
    node.mine(3).await;
    assert!(matches!(standing(&edge, &second_claim).await, TxStatus::Settled(_)));
    assert_eq!(standing(&edge, &first_claim).await, TxStatus::NotSeen);
    assert_eq!(balance(&node, &receiver(0x52)).await, 1);
}

#[tokio::test]
async fn refusals_of_a_real_node_are_told_apart() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let (rich, poor) = (Wallet::funded(&node, 3).await, Wallet::funded(&node, 4).await);
    node.call("anvil_setBalance", json!([poor.address().to_string(), "0x1"])).await;
    let outcome = async |raw: Vec<u8>| edge.broadcast(&[raw]).await.remove(0).merged;

    assert_eq!(outcome(poor.native(&edge, 0, 0x53, FEE).0).await, BroadcastOutcome::InsufficientFunds);

    let plan = rich.plan(rich.pays(payment::AssetRef::Native, 0x53, 1), 0, FEE);
    let mut tx = edge.unsigned(&plan).unwrap();
    tx.gas_limit = 20_000;
    assert!(matches!(outcome(rich.sign(&tx)).await, BroadcastOutcome::GasLimit { .. }));

    let mut tx = edge.unsigned(&plan).unwrap();
    tx.gas_limit = 1_000_000_000;
    assert!(matches!(outcome(rich.sign(&tx)).await, BroadcastOutcome::GasLimit { .. }));

    let mut tx = edge.unsigned(&plan).unwrap();
    tx.chain_id = CHAIN_ID + 1;
    assert!(matches!(outcome(rich.sign(&tx)).await, BroadcastOutcome::Rejected { .. }));
    assert!(matches!(outcome(vec![1, 2, 3]).await, BroadcastOutcome::Rejected { .. }));

    let low = GasFee::Dynamic { max_fee: 1, max_priority: 1 };
    let outcome = outcome(rich.native(&edge, 0, 0x53, low).0).await;
    assert!(
        matches!(outcome, BroadcastOutcome::Underpriced(Pricing::Pool) | BroadcastOutcome::Accepted),
        "{outcome}"
    );
}

#[tokio::test]
async fn a_batch_keeps_its_order_and_each_its_own_outcome() {
    let node = node().await;
    let edge = edge(&[node.url()]);
    let wallet = Wallet::funded(&node, 5).await;
    // More than one JSON-RPC batch.
    let mut raw: Vec<Vec<u8>> = (0..130).map(|nonce| wallet.native(&edge, nonce, 0x54, FEE).0).collect();
    raw.insert(7, vec![0xff]);
    raw.push(raw[0].clone());
    let outcomes = edge.broadcast(&raw).await;
    let labels: Vec<_> = outcomes.iter().map(label).collect();
    assert_eq!((labels[7], labels[131]), ("rejected", "already_known"));
    assert_eq!(labels.iter().filter(|label| **label == "accepted").count(), 130);
    node.mine(1).await;
    assert_eq!(balance(&node, &receiver(0x54)).await, 130);
    assert!(edge.broadcast(&[]).await.is_empty());
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_same_bytes_settle_it() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let wallet = Wallet::funded(&node, 6).await;
    let (raw, claim) = wallet.native(&edge, 0, 0x55, FEE);
    proxy.rule(Rule::on(SEND, Upset::ReplyLost).times(1));

    let lost = edge.broadcast(std::slice::from_ref(&raw)).await.remove(0).merged;
    assert_eq!((lost.label(), lost.advice()), ("unknown", Advice::ResendSame));
    assert_eq!(seen(&edge, claim.hash).await, Seen::Pending);
    assert_eq!(edge.broadcast(&[raw]).await[0].merged, BroadcastOutcome::AlreadyKnown);
    node.mine(1).await;
    assert_eq!(balance(&node, &receiver(0x55)).await, 1);
}

#[tokio::test]
async fn silence_and_server_errors_are_unknown_and_a_closed_door_is_not() {
    let node = node().await;
    let proxy = FaultProxy::http(node.address()).await;
    let edge = edge(&[proxy.url()]);
    let wallet = Wallet::funded(&node, 7).await;
    let (raw, _) = wallet.native(&edge, 0, 0x56, FEE);
    edge.probe().await;
    let outcome = async || edge.broadcast(std::slice::from_ref(&raw)).await.remove(0).merged;

    for upset in [
        Upset::Hang,
        Upset::Answer { status: 502, body: "bad gateway".into() },
        Upset::Answer { status: 200, body: "<html>".into() },
        Upset::Answer { status: 200, body: r#"{"jsonrpc":"2.0","id":null}"#.into() },
        Upset::RpcError { code: -32000, message: "something nobody has ever seen".into() },
    ] {
        proxy.rule(Rule::on(SEND, upset.clone()).times(1));
        assert_eq!(outcome().await.label(), "unknown", "{upset:?}");
    }
    proxy.rule(Rule::on(SEND, Upset::Answer { status: 429, body: String::new() }).times(1));
    assert_eq!(outcome().await, BroadcastOutcome::Transient(TransientCause::RateLimited));
    proxy.refuse().await;
    assert_eq!(outcome().await, BroadcastOutcome::Transient(TransientCause::Unreachable));
    proxy.pass().await;
    assert_eq!(outcome().await, BroadcastOutcome::Accepted);
}

#[tokio::test]
async fn a_slow_node_delays_nothing_and_still_gets_the_bytes() {
    let node = node().await;
    let (_first, second, edge) = two_nodes(&node).await;
    let wallet = Wallet::funded(&node, 8).await;
    edge.probe().await;
    let (raw, _) = wallet.native(&edge, 0, 0x57, FEE);
    let hold = Hold::new();
    second.rule(Rule::on(SEND, Upset::Held(hold.clone())));

    let started = Instant::now();
    let broadcast = edge.broadcast(&[raw]).await.remove(0);
    assert!(started.elapsed() < Duration::from_millis(1_900), "waited for the slow node");
    assert_eq!(broadcast.merged, BroadcastOutcome::Accepted);
    let outcomes: Vec<_> = broadcast.nodes.iter().map(|(name, outcome)| (&**name, outcome.label())).collect();
    assert_eq!(outcomes, [("node-0", "accepted"), ("node-1", "unknown")]);
    hold.caught(1).await;
    hold.release();
}
