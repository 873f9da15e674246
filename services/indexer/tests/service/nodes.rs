//! Nodes that refuse, fail, lag, report blocks they do not have, and leave events out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};
use testkit::{FaultProxy, Rule, Upset, wait_for};

use crate::kit::{FEES, LONG, Settings, World, number, source};
use crate::lying_node::{LyingNode, asked, error};

async fn parked(database: &testkit::MongoDatabase) -> u64 {
    let jobs = database.database().await.collection::<Document>("blockJobs");
    jobs.count_documents(doc! { "status": "exhausted" }).await.unwrap()
}

#[tokio::test]
async fn a_node_that_refuses_ranges_in_any_wording_is_asked_for_less() {
    let (world, database) = World::with_history(45).await;
    let liar = LyingNode::before(world.chain.url()).await;
    let wordings = [
        "query returned more than 10000 results",
        "eth_getLogs is limited to a 3 range",
        "exceed maximum block range: 3",
        "Query timeout exceeded. Consider reducing your block range.",
        "Log response size exceeded. this block range should work: [0x1, 0x2]",
    ];
    let turn = AtomicU64::new(0);
    liar.lie(move |method, params, truth| match (method, asked(params)) {
        ("eth_getLogs", Some((from, to))) if to - from >= 3 => {
            let turn = turn.fetch_add(1, Ordering::SeqCst) as usize;
            error(&truth["id"], -32005, wordings[turn % wordings.len()])
        }
        _ => truth,
    });
    let settings = Settings { nodes: vec![liar.url()], batch: 20, ..world.settings(&database) };
    let indexing = settings.launch().await;
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;
    assert_eq!(parked(&database).await, 0);
    indexing.stop().await;
}

#[tokio::test]
async fn a_single_block_that_is_too_much_is_read_from_its_receipts() {
    let (world, database) = World::with_history(12).await;
    world.emit(120).await;
    let dense = world.head().await;
    world.history(5).await;
    let liar = LyingNode::before(world.chain.url()).await;
    liar.lie(move |method, params, truth| match (method, asked(params)) {
        ("eth_getLogs", Some((from, to))) if from <= dense && dense <= to => {
            error(&truth["id"], -32005, "query returned more than 100 results")
        }
        _ => truth,
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn a_node_that_is_down_is_passed_over_and_an_outage_uses_up_no_attempts() {
    let (world, database) = World::with_history(20).await;
    let first = FaultProxy::http(world.chain.address()).await;
    let second = FaultProxy::http(world.chain.address()).await;
    let nodes = vec![first.url(), second.url()];
    // Three attempts only: an outage of many rounds would park every range if it counted.
    let extra = "max_attempts = 3".to_owned();
    let indexing = Settings { nodes, extra, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;

    first.refuse().await;
    world.history(15).await;
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;

    first.pass().await;
    let refused = |methods: &[&'static str]| {
        for proxy in [&first, &second] {
            proxy.replace_rules(methods.iter().map(|method| Rule::on(method, Upset::Refuse)));
        }
    };
    // Heads cannot be read, so nothing is claimed; then only logs fail, and claimed ranges are released.
    refused(&["eth_getBlockByNumber", "eth_getLogs", "eth_getBlockReceipts"]);
    world.history(15).await;
    let stuck = world.head().await;
    refused(&["eth_getLogs", "eth_getBlockReceipts"]);
    let before = first.calls("eth_getLogs");
    wait_for("many failed attempts", LONG, || async { first.calls("eth_getLogs") > before + 12 }).await;
    wait_for("the reason why it does not move", LONG, || async {
        let progress = indexing.progress(FEES).await.unwrap();
        assert!(progress.complete_to_block < stuck);
        let first = progress.retried.first();
        first.is_some_and(|range| {
            range.from_block == progress.complete_to_block + 1 && !range.error.is_empty()
        })
    })
    .await;
    assert_eq!(parked(&database).await, 0, "an outage is not the range's fault");
    first.pass().await;
    second.pass().await;
    let progress = indexing.complete_to(FEES, stuck).await;
    assert_eq!(progress.retried, []);
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_slow_node_is_asked_for_less_and_another_one_asked_instead() {
    let (world, database) = World::with_history(30).await;
    let slow = FaultProxy::http(world.chain.address()).await;
    slow.rule(Rule::on("eth_getLogs", Upset::Hang));
    let extra = "verify = \"bloom\"".to_owned();
    let nodes = vec![slow.url(), world.chain.url()];
    let indexing = Settings { nodes, extra, ..world.settings(&database) }.launch().await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn a_node_that_hangs_does_not_hold_up_the_others() {
    let (world, database) = World::with_history(20).await;
    let hanging = FaultProxy::http(world.chain.address()).await;
    let nodes = vec![hanging.url(), world.chain.url()];
    // A worker that waits for its full timeout would be too late.
    let node_timeout_ms = u64::try_from(LONG.as_millis()).unwrap();
    let extra = "verify = \"bloom\"".to_owned();
    let settings = Settings { nodes, extra, node_timeout_ms, ..world.settings(&database) };
    let indexing = settings.launch().await;
    indexing.caught_up(&world).await;
    for question in ["eth_chainId", "eth_getBlockByNumber"] {
        hanging.rule(Rule::on(question, Upset::Hang));
    }
    world.history(5).await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn the_empty_answer_of_a_lagging_node_is_no_empty_range() {
    let (world, database) = World::with_history(30).await;
    let (lagging, honest) =
        (LyingNode::before(world.chain.url()).await, LyingNode::before(world.chain.url()).await);
    // It reports the true head, but its blocks end at 10; for later ones it returns no logs without an error, as geth does.
    lagging.lie(|method, params, mut truth| match method {
        "eth_getLogs" => {
            if let Some(logs) = truth["result"].as_array_mut() {
                logs.retain(|log| number(&log["blockNumber"]) <= 10);
            }
            truth
        }
        "eth_getBlockByNumber" if params[0] != "latest" && number(&params[0]) > 10 => {
            json!({ "jsonrpc": "2.0", "id": truth["id"], "result": null })
        }
        _ => truth,
    });
    // The honest one is down at first: nothing of the lagging one may be used meanwhile.
    honest.lie(|_, _, truth| error(&truth["id"], -32000, "service unavailable"));
    let nodes = vec![lagging.url(), honest.url()];
    let settings = Settings { nodes, sources: false, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let source = source(FEES, &world.contract, settings.nodes.clone());
    let request = proto::indexer::v1::AddSourceRequest { source: Some(source) };
    indexing.client().add_source(request).await.unwrap();
    honest.tell_the_truth();
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;
    lagging.tell_the_truth();
    indexing.stop().await;
}

#[tokio::test]
async fn a_node_that_lies_about_its_head_stops_nothing_and_fills_nothing() {
    let (world, database) = World::with_history(20).await;
    let liar = LyingNode::before(world.chain.url()).await;
    // Its head is twenty blocks ahead, but it has no block there.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" && params[0] == "latest" {
            let claimed = number(&truth["result"]["number"]) + 20;
            truth["result"]["number"] = json!(format!("{claimed:#x}"));
        }
        truth
    });
    let nodes = vec![liar.url(), world.chain.url()];
    let indexing = Settings { nodes, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    world.history(10).await;
    indexing.caught_up(&world).await;
    world.assert_stored(&database).await;

    // Now it also invents that block, so ranges are claimed that no node has.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" {
            let latest = params[0] == "latest";
            if latest || truth["result"].is_null() {
                let claimed =
                    if latest { number(&truth["result"]["number"]) + 20 } else { number(&params[0]) };
                if latest || claimed.is_multiple_of(2) {
                    let mut block =
                        if latest { truth["result"].clone() } else { json!({ "parentHash": hash(1) }) };
                    block["number"] = json!(format!("{claimed:#x}"));
                    block["hash"] = hash(claimed);
                    block["timestamp"] = json!("0x1");
                    block["parentHash"] = hash(claimed - 1);
                    truth = json!({ "jsonrpc": "2.0", "id": truth["id"], "result": block });
                }
            }
        }
        truth
    });
    world.history(12).await;
    indexing.caught_up(&world).await;
    liar.tell_the_truth();
    // The false head is corrected.
    let head = world.head().await;
    wait_for("the true head", LONG, || async {
        indexing.progress(FEES).await.is_some_and(|p| (p.head_block, p.lag_blocks) == (head, 0))
    })
    .await;
    world.history(40).await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn a_boasting_node_does_not_hide_a_reorganisation() {
    let (world, database) = World::with_history(30).await;
    let liar = LyingNode::before(world.chain.url()).await;
    // Its head is far ahead, and it returns a block there, but none in between.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" && (params[0] == "latest" || number(&params[0]) == 1_000) {
            let mut block = json!({ "number": "0x3e8", "timestamp": "0x1" });
            (block["hash"], block["parentHash"]) = (hash(1_000), hash(999));
            truth = json!({ "jsonrpc": "2.0", "id": truth["id"], "result": block });
        }
        truth
    });
    let nodes = vec![liar.url(), world.chain.url()];
    let indexing = Settings { nodes, finality: 20, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    for depth in [2, 6, 11] {
        world.reorganise(depth, &[(3, 0)]).await;
        world.stored_in_full(&database.database().await).await;
        world.history(3).await;
        indexing.caught_up(&world).await;
    }
    world.assert_stored(&database).await;
    indexing.stop().await;
}

fn hash(of: u64) -> Value {
    json!(format!("0x{:064x}", of + (1 << 40)))
}

#[tokio::test]
async fn blocks_that_an_answer_leaves_out_are_found_by_their_bloom() {
    let (world, database) = World::with_history(40).await;
    let liar = LyingNode::before(world.chain.url()).await;
    liar.change_logs(|logs| {
        logs.retain(|log| !number(&log["blockNumber"]).is_multiple_of(4));
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn an_empty_list_of_receipts_is_no_proof_that_a_block_is_empty() {
    let (world, database) = World::with_history(20).await;
    let liar = LyingNode::before(world.chain.url()).await;
    // It has headers of blocks whose contents it does not have yet.
    let asked_for_receipts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked_for_receipts);
    liar.lie(move |method, _, truth| match method {
        "eth_getLogs" => json!({ "jsonrpc": "2.0", "id": truth["id"], "result": [] }),
        "eth_getBlockReceipts" => {
            counted.fetch_add(1, Ordering::SeqCst);
            json!({ "jsonrpc": "2.0", "id": truth["id"], "result": [] })
        }
        _ => truth,
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    wait_for("several attempts", LONG, || async { asked_for_receipts.load(Ordering::SeqCst) > 5 }).await;
    liar.tell_the_truth();
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn an_answer_that_is_cut_off_or_doubled_is_mended() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    for _ in 0..12 {
        world.emit(30).await;
    }
    let liar = LyingNode::before(world.chain.url()).await;
    liar.change_logs(|logs| {
        // It ends in the middle of a block, and has duplicates out of order.
        logs.truncate(100);
        let twice: Vec<Value> = logs.iter().take(7).cloned().collect();
        logs.extend(twice);
        logs.reverse();
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.finish(&world, &database).await;
}

#[tokio::test]
async fn single_logs_that_one_node_leaves_out_are_found_by_the_other() {
    let (world, database) = World::with_history(40).await;
    let liar = LyingNode::before(world.chain.url()).await;
    liar.change_logs(|logs| {
        logs.retain(|log| number(&log["logIndex"]) != 1);
    });
    let nodes = vec![liar.url(), world.chain.url()];
    let indexing = Settings { nodes, ..world.settings(&database) }.launch().await;
    indexing.finish(&world, &database).await;

    // With a single node they are found if every block is compared with its receipts.
    let fresh = testkit::mongo().await;
    let extra = "verify = \"receipts\"".to_owned();
    let indexing = Settings { nodes: vec![liar.url()], extra, ..world.settings(&fresh) }.launch().await;
    indexing.finish(&world, &fresh).await;
}

#[tokio::test]
async fn a_range_that_no_attempt_can_read_is_parked_and_can_be_requeued() {
    let (world, database) = World::with_history(30).await;
    let liar = LyingNode::before(world.chain.url()).await;
    let tries = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&tries);
    // The response for one range always holds a log of another contract.
    liar.lie(move |method, params, mut truth| match (method, asked(params)) {
        ("eth_getLogs", Some((from, to))) if from <= 15 && 15 <= to => {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Some(log) = truth["result"].as_array_mut().and_then(|logs| logs.first_mut()) {
                log["address"] = json!("0x00000000000000000000000000000000000000ff");
            }
            truth
        }
        _ => truth,
    });
    let extra = "max_attempts = 3".to_owned();
    let indexing = Settings { nodes: vec![liar.url()], extra, ..world.settings(&database) }.launch().await;
    wait_for("the range to be parked", LONG, || async {
        indexing.progress(FEES).await.is_some_and(|progress| progress.exhausted.len() == 1)
    })
    .await;
    let progress = indexing.complete_to(FEES, 9).await;
    let range = &progress.exhausted[0];
    assert_eq!((range.from_block, range.to_block, range.attempts), (10, 19, 3));
    assert!(range.error.contains("not requested"), "{}", range.error);
    assert_eq!(progress.complete_to_block, 9, "nothing beyond the gap counts as complete");
    assert!(tries.load(Ordering::SeqCst) >= 3);
    liar.tell_the_truth();
    let requeue = |from_block| {
        let request = proto::indexer::v1::RequeueRangeRequest { source: FEES.to_owned(), from_block };
        let mut client = indexing.client();
        async move { client.requeue_range(request).await.unwrap().into_inner().requeued }
    };
    assert_eq!(requeue(11).await, 0);
    assert_eq!(requeue(10).await, 1);
    indexing.caught_up(&world).await;
    assert_eq!(requeue(10).await, 0);
    world.assert_stored(&database).await;
    indexing.stop().await;
}
