//! The end of a window: nothing is called expired before a solid block is beyond it and every solid block was read.

use chain::{Agreement, Anchor, ChainEdge as _, Fate, FateQuestion};
use serde_json::{Value, json};
use testkit::{FaultProxy, Rule, Upset};

use super::kit::{Net, SLOT_MS, Signed, TRX, WINDOW_MS, payer, receiver};

fn is_expired(fate: &Agreement<Fate>) -> bool {
    matches!(fate, Agreement::Agreed { value: Fate::Expired { .. }, .. })
}

#[tokio::test]
async fn a_window_refers_to_a_solid_block_and_counts_by_block_time() {
    let net = Net::start(3).await;
    net.produce(7).await;
    let head = net.edge.head().await.unwrap();
    let Anchor::Window { block: reference, window } = net.edge.anchor(&payer()).await.unwrap() else {
        panic!("TRON has windows")
    };
    let solid = net.solid().await;
    assert_eq!((reference.number, reference.hash), (solid.number, solid.hash));
    assert_eq!((window.made_ms, window.expiration_ms), (head.timestamp_ms, head.timestamp_ms + WINDOW_MS));
    // A fork of everything that is not solid leaves the reference alone.
    let signed = net.signed(net.pays_trx(1, TRX)).await;
    net.post("admin/fork", json!({ "depth": 3, "include": false })).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(1).await;
    assert_eq!(net.paid(&receiver(1)).await.0, 1);
}

#[tokio::test]
async fn a_window_is_open_until_a_solid_block_is_beyond_it() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(2, TRX)).await;
    let mut expired = false;
    for _ in 0..WINDOW_MS / SLOT_MS + 5 {
        let asof = net.solid().await;
        let fate = net.edge.fate(&signed.question(asof)).await;
        let beyond = asof.timestamp_ms >= signed.expiration_ms;
        assert_eq!(is_expired(&fate), beyond, "{fate:?} at {asof:?}");
        if !beyond {
            assert!(matches!(fate, Agreement::Agreed { value: Fate::Open, .. }), "{fate:?}");
        }
        expired |= beyond;
        net.produce(1).await;
    }
    assert!(expired);
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(1).await;
    assert_eq!(net.paid(&receiver(2)).await.0, 0, "and from then on the bytes are dead");
}

#[tokio::test]
async fn a_mined_transaction_is_found_though_every_node_denies_it() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(3, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(20).await;
    for node in 0..2 {
        net.fault(node, "empty", "gettransaction", 0).await;
    }
    let fate = net.edge.fate(&signed.question(net.solid().await)).await;
    assert!(matches!(fate, Agreement::Agreed { value: Fate::Ours { .. }, .. }), "{fate:?}");
}

#[tokio::test]
async fn mined_later_than_its_expiration_after_missed_slots_is_found() {
    let net = Net::start(1).await;
    let signed = net.signed(net.pays_trx(4, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    // The next block is long after the expiration, and its parent long before.
    net.post("admin/produce", json!({ "blocks": 1, "missed": 30 })).await;
    assert_eq!(net.paid(&receiver(4)).await.0, 1);
    net.solidify().await;
    let fate = net.edge.fate(&signed.question(net.solid().await)).await;
    assert!(matches!(fate, Agreement::Agreed { value: Fate::Ours { .. }, .. }), "{fate:?}");
}

#[tokio::test]
async fn one_node_without_an_answer_leaves_it_undecided_among_all() {
    let net = Net::start(3).await;
    let signed = net.signed(net.pays_trx(5, TRX)).await;
    net.produce(20).await;
    let asof = net.solid().await;
    let all = net.edge.fate(&signed.question(asof)).await;
    let Agreement::Agreed { value: Fate::Expired { .. }, by } = all else { panic!("{all:?}") };
    assert_eq!(by.len(), 3, "every node was asked");
    for (what, change) in [
        ("lite", json!({ "node": 1, "lite": true })),
        ("without history", json!({ "node": 1, "lite": false, "history_blocks": 3 })),
        ("lagging", json!({ "node": 1, "history_blocks": 0, "lag": 12 })),
    ] {
        net.node(change).await;
        net.produce(12).await;
        let asof = net.solid().await;
        match net.edge.fate(&signed.question(asof)).await {
            Agreement::Agreed { value: Fate::Expired { .. }, by } => {
                assert_eq!(by.len(), 2, "{what}: a node that cannot know is not among those that agree");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    net.node(json!({ "node": 1, "lag": 0 })).await;
    net.fault(1, "truncated", "getblockbylimitnext", 1).await;
    net.fault(2, "rate_limit", "getblockbylimitnext", 1).await;
    let fate = net.edge.fate(&signed.question(asof)).await;
    assert!(matches!(fate, Agreement::TooFew { .. }), "{fate:?}");
}

#[tokio::test]
async fn a_search_that_would_begin_after_the_window_proves_nothing() {
    let net = Net::start(1).await;
    let signed = net.signed(net.pays_trx(5, TRX)).await;
    net.produce(20).await;
    let asof = net.solid().await;
    assert!(is_expired(&net.edge.fate(&signed.question(asof)).await));
    let late = FateQuestion { since: asof.number, ..signed.question(asof) };
    let fate = net.edge.fate(&late).await;
    assert!(matches!(fate, Agreement::TooFew { .. }), "{fate:?}");
}

#[tokio::test]
async fn a_transaction_known_to_one_node_alone_is_not_gone() {
    let net = Net::start(2).await;
    net.node(json!({ "node": 1, "isolated": true })).await;
    let signed = net.signed(net.pays_trx(6, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(2).await;
    let fate = net.edge.fate(&signed.question(net.solid().await)).await;
    assert!(!is_expired(&fate), "{fate:?}");
    net.solidify().await;
    let fate = net.edge.fate(&signed.question(net.solid().await)).await;
    assert!(matches!(fate, Agreement::Agreed { value: Fate::Ours { .. }, .. }), "{fate:?}");
}

#[tokio::test]
async fn blocks_without_their_transactions_prove_nothing() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(7, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    net.produce(20).await;
    let asof = net.solid().await;
    for node in 0..2 {
        net.fault(node, "hollow", "getblockbylimitnext", 0).await;
        net.fault(node, "empty", "gettransaction", 0).await;
    }
    let fate = net.edge.fate(&signed.question(asof)).await;
    assert!(matches!(fate, Agreement::TooFew { .. }), "{fate:?}");
    net.post("admin/faults/clear", json!({})).await;
    let fate = net.edge.fate(&signed.question(asof)).await;
    assert!(matches!(fate, Agreement::Agreed { value: Fate::Ours { .. }, .. }), "{fate:?}");
}

#[tokio::test]
async fn a_search_that_began_too_late_proves_nothing() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(8, TRX)).await;
    net.edge.broadcast(std::slice::from_ref(&signed.raw)).await;
    let mined = net.edge.head().await.unwrap().number + 1;
    net.produce(20).await;
    let mut question = signed.question(net.solid().await);
    // What is read from here on does not show it.
    question.since = mined + 1;
    let fate = net.edge.fate(&question).await;
    assert!(matches!(fate, Agreement::TooFew { .. }), "{fate:?}");
}

/// Blocks with payments that succeed and fail, one of them `signed` itself if asked; then enough to be beyond its window.
async fn busy_blocks(net: &Net, signed: &Signed, send_it: bool) {
    let price = net.signed(net.pays_token(31, 7)).await.plan.price;
    let order =
        json!({ "token": net.token.to_string(), "behaviour": "revert", "to": receiver(31).to_string() });
    net.post("admin/behaviour", order).await;
    let others = [
        net.signed(net.pays_trx(32, TRX)).await,
        net.signed_at(net.pays_token(31, 7), price).await,
        net.signed(net.pays_token(33, 7)).await,
    ];
    let mut raw: Vec<_> = others.iter().map(|other| other.raw.clone()).collect();
    if send_it {
        raw.push(signed.raw.clone());
    }
    net.edge.broadcast(&raw).await;
    net.produce(18).await;
}

/// What a node says on this path about blocks from `since` on, changed.
async fn altered(net: &Net, since: u64, change: impl Fn(&mut Vec<Value>)) -> Rule {
    let range = json!({ "startNum": since, "endNum": since + 20 });
    let mut answer = net.post("walletsolidity/getblockbylimitnext", range).await;
    for block in answer["block"].as_array_mut().unwrap() {
        if let Some(transactions) = block.get_mut("transactions").and_then(Value::as_array_mut) {
            change(transactions);
        }
    }
    let body = answer.to_string();
    Rule::on("/walletsolidity/getblockbylimitnext", Upset::Answer { status: 200, body })
}

async fn proxy_of(net: &Net, node: usize) -> FaultProxy {
    FaultProxy::http(net.devnet.url(node).trim_start_matches("http://")).await
}

#[tokio::test]
async fn whole_blocks_are_proven_by_their_roots_alone() {
    let net = Net::start(1).await;
    let signed = net.signed(net.pays_trx(9, TRX)).await;
    busy_blocks(&net, &signed, false).await;
    let proxy = proxy_of(&net, 0).await;
    let edge = net.edge_with(|config| config.nodes[0].url = proxy.url()).await;
    let asof = net.solid().await;
    let fate = edge.fate(&signed.question(asof)).await;
    let Agreement::Agreed { value: Fate::Expired { closing, .. }, .. } = fate else { panic!("{fate:?}") };
    assert!(closing.number <= asof.number);
    assert_eq!(proxy.calls("/walletsolidity/gettransactioninfobyblocknum"), 0);
}

#[tokio::test]
async fn a_block_with_one_transaction_missing_proves_nothing() {
    let net = Net::start(1).await;
    let signed = net.signed(net.pays_trx(10, TRX)).await;
    busy_blocks(&net, &signed, true).await;
    assert_eq!(net.paid(&receiver(10)).await.0, 1);
    let proxy = proxy_of(&net, 0).await;
    let edge = net.edge_with(|config| config.nodes[0].url = proxy.url()).await;
    let id = signed.claim.hash.bare();
    // It neither lists ours nor has a receipt of it.
    let cut = altered(&net, signed.since, |all| all.retain(|one| one["txID"] != id.as_str())).await;
    let nothing = Upset::Answer { status: 200, body: "{}".to_owned() };
    proxy.replace_rules([cut, Rule::on("/walletsolidity/gettransactioninfobyid", nothing.clone())]);
    let asof = net.solid().await;
    let fate = edge.fate(&signed.question(asof)).await;
    let Agreement::TooFew { silent, .. } = fate else { panic!("{fate:?}") };
    assert!(silent[0].1.contains("does not show the transactions of its root"), "{silent:?}");
    // One that calls ours by another name shows it all the same.
    let renamed = altered(&net, signed.since, |all| {
        all.iter_mut().for_each(|one| one["txID"] = "00".repeat(32).into());
    });
    proxy.replace_rules([renamed.await, Rule::on("/walletsolidity/gettransactioninfobyid", nothing)]);
    let fate = edge.fate(&signed.question(asof)).await;
    assert!(matches!(fate, Agreement::Agreed { value: Fate::Ours { .. }, .. }), "{fate:?}");
}

#[tokio::test]
async fn where_a_root_cannot_be_computed_the_receipts_must_name_the_same_and_the_nodes_must_agree() {
    let net = Net::start(2).await;
    let signed = net.signed(net.pays_trx(11, TRX)).await;
    busy_blocks(&net, &signed, false).await;
    let (first, second) = (proxy_of(&net, 0).await, proxy_of(&net, 1).await);
    let edge = net
        .edge_with(|config| {
            config.nodes[0].url = first.url();
            config.nodes[1].url = second.url();
        })
        .await;
    let strange = |all: &mut Vec<Value>| all[0]["ret"][0]["a_field_of_next_year"] = 1.into();
    let asof = net.solid().await;
    for proxy in [&first, &second] {
        proxy.rule(altered(&net, signed.since, strange).await);
    }
    let fate = edge.fate(&signed.question(asof)).await;
    assert!(is_expired(&fate), "{fate:?}");
    // One leaves a transaction out, with its receipt.
    let dropped = altered(&net, signed.since, |all| {
        strange(all);
        all.pop();
    });
    let range = json!({ "startNum": signed.since, "endNum": asof.number + 1 });
    let blocks = net.post("walletsolidity/getblockbylimitnext", range).await;
    let busy = blocks["block"].as_array().unwrap().iter().find(|block| block.get("transactions").is_some());
    let number = busy.unwrap()["block_header"]["raw_data"]["number"].clone();
    let mut receipts =
        net.post("walletsolidity/gettransactioninfobyblocknum", json!({ "num": number })).await;
    receipts.as_array_mut().unwrap().pop();
    let receipts = Upset::Answer { status: 200, body: receipts.to_string() };
    let hidden = Rule::on("/walletsolidity/gettransactioninfobyblocknum", receipts);
    second.replace_rules([dropped.await, hidden]);
    let fate = edge.fate(&signed.question(asof)).await;
    assert!(fate.is_disagreement(), "{fate:?}");
}
