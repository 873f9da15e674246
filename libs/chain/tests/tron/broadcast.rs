//! Every answer a node may give to sent bytes, acted out.

use chain::{Advice, BroadcastOutcome, ChainEdge as _, Seen, TransientCause};
use serde_json::json;

use super::kit::{Net, TRX, receiver};

async fn send(net: &Net, raw: &[u8]) -> chain::Broadcast {
    net.edge.broadcast(&[raw.to_vec()]).await.pop().unwrap()
}

#[tokio::test]
async fn accepted_bytes_are_paid_once_however_often_they_are_sent() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(1, 5 * TRX)).await;
    let first = send(&net, &signed.raw).await;
    assert_eq!(first.hash, signed.claim.hash);
    assert_eq!(first.merged, BroadcastOutcome::Accepted);
    assert_eq!(send(&net, &signed.raw).await.merged, BroadcastOutcome::Duplicate);
    net.produce(1).await;
    assert_eq!(send(&net, &signed.raw).await.merged.advice(), Advice::LookUp);
    let seen = net.edge.lookup(&[signed.claim.hash]).await.unwrap()[0].seen;
    assert!(matches!(seen, Seen::Included(_)), "{seen:?}");
    assert_eq!(net.paid(&receiver(1)).await, (1, (5 * TRX).to_string()));
}

#[tokio::test]
async fn each_fault_is_read_as_what_it_is() {
    let unknown = |outcome: &BroadcastOutcome| matches!(outcome, BroadcastOutcome::Unknown { .. });
    let busy = |outcome: &BroadcastOutcome| *outcome == BroadcastOutcome::Transient(TransientCause::Busy);
    let accepted = |outcome: &BroadcastOutcome| *outcome == BroadcastOutcome::Accepted;
    type Reading = fn(&BroadcastOutcome) -> bool;
    // What happened to the bytes: whether they end up paid without being sent again.
    let cases: &[(&str, Reading, u64)] = &[
        ("accept_timeout", unknown, 1),
        ("accept_502", unknown, 1),
        ("truncated", unknown, 1),
        ("other_error", unknown, 1),
        ("timeout", unknown, 0),
        ("bad_gateway", unknown, 0),
        ("rate_limit", unknown, 0),
        ("lite", unknown, 0),
        ("p2p_failed", accepted, 1),
        ("lost", accepted, 0),
        ("forgotten", accepted, 0),
        ("busy", busy, 0),
        ("no_connection", busy, 0),
        ("unsolidified", busy, 0),
    ];
    for (number, (kind, reading, paid)) in (10u8..).zip(cases) {
        let net = Net::start(1).await;
        let signed = net.signed(net.pays_trx(number, TRX)).await;
        net.fault(0, kind, "broadcast", 1).await;
        let outcome = send(&net, &signed.raw).await.merged;
        assert!(reading(&outcome), "{kind}: {outcome}");
        net.produce(1).await;
        assert_eq!(net.paid(&receiver(number)).await.0, *paid, "{kind}");
        // The same bytes again never pay twice; where nothing came of them, they pay now or stay unpaid.
        send(&net, &signed.raw).await;
        net.produce(1).await;
        assert!(net.paid(&receiver(number)).await.0 <= 1, "{kind}");
    }
}

#[tokio::test]
async fn one_node_that_took_it_outranks_all_that_refuse() {
    let net = Net::start(3).await;
    net.fault(0, "busy", "broadcast", 0).await;
    net.fault(1, "accept_502", "broadcast", 0).await;
    let signed = net.signed(net.pays_trx(2, TRX)).await;
    let sent = send(&net, &signed.raw).await;
    assert!(
        matches!(sent.merged, BroadcastOutcome::Accepted | BroadcastOutcome::Duplicate),
        "{}",
        sent.merged
    );
    assert_eq!(sent.nodes.len(), 3);
}

#[tokio::test]
async fn a_lagging_node_that_does_not_know_the_reference_is_only_behind() {
    let mut net = Net::start(2).await;
    net.edge = net.edge_with(|config| config.quorum = Some(1)).await;
    net.node(json!({ "node": 1, "lag": 10 })).await;
    net.produce(10).await;
    let signed = net.signed(net.pays_trx(3, TRX)).await;
    net.fault(0, "busy", "broadcast", 1).await;
    let sent = send(&net, &signed.raw).await;
    assert_eq!(sent.nodes[1].1, BroadcastOutcome::Transient(TransientCause::Behind));
    assert_eq!(sent.merged.advice(), Advice::ResendSame);
}

#[tokio::test]
async fn expired_bytes_say_so_whether_they_were_mined_or_not() {
    let net = Net::start(1).await;
    let mined = net.signed(net.pays_trx(4, TRX)).await;
    let never = net.signed(net.pays_trx(5, TRX)).await;
    send(&net, &mined.raw).await;
    net.produce(20).await;
    for signed in [&mined, &never] {
        let outcome = send(&net, &signed.raw).await.merged;
        assert_eq!(outcome, BroadcastOutcome::Expired);
        assert_eq!(outcome.advice(), Advice::LookUp);
    }
    assert_eq!(net.paid(&receiver(4)).await.0, 1);
    assert_eq!(net.paid(&receiver(5)).await.0, 0);
}

#[tokio::test]
async fn a_wallet_that_is_empty_by_now_waits_for_money() {
    let net = Net::start(1).await;
    let first = net.signed(net.pays_trx(6, 9_990 * TRX)).await;
    let second = net.signed(net.pays_trx(7, 9_000 * TRX)).await;
    assert_eq!(send(&net, &first.raw).await.merged, BroadcastOutcome::Accepted);
    let poor = send(&net, &second.raw).await.merged;
    assert_eq!(poor, BroadcastOutcome::InsufficientFunds);
    net.post("admin/fund", json!({ "address": super::kit::PAYER, "sun": 9_100 * TRX })).await;
    assert_eq!(send(&net, &second.raw).await.merged, BroadcastOutcome::Accepted, "the same bytes, later");
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_took_nothing() {
    let net = Net::start(1).await;
    let signed = net.signed(net.pays_trx(8, TRX)).await;
    let nowhere = net.edge_with(|config| config.nodes[0].url = "http://127.0.0.1:9".to_owned()).await;
    let sent = nowhere.broadcast(std::slice::from_ref(&signed.raw)).await.pop().unwrap();
    assert_eq!(sent.merged, BroadcastOutcome::Transient(TransientCause::Unreachable));
}
