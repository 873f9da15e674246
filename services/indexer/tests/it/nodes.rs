//! Nodes that refuse, fail, lag, boast and leave things out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};
use testkit::{Fault, FaultProxy, Rule, wait_for};

use crate::kit::{FEES, LONG, Settings, World, number};
use crate::liar::{Liar, asked, error};

async fn parked(database: &testkit::MongoDatabase) -> u64 {
    let jobs = database.database().await.collection::<Document>("blockJobs");
    jobs.count_documents(doc! { "status": "exhausted" }).await.unwrap()
}

#[tokio::test]
async fn a_node_that_refuses_ranges_in_any_wording_is_asked_for_less() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(45).await;
    let liar = Liar::before(world.chain.url()).await;
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
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    assert_eq!(parked(&database).await, 0);
    indexing.stop().await;
}

#[tokio::test]
async fn a_single_block_that_is_too_much_is_read_from_its_receipts() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(12).await;
    world.emit(120).await;
    let dense = world.head().await;
    world.history(5).await;
    let liar = Liar::before(world.chain.url()).await;
    liar.lie(move |method, params, truth| match (method, asked(params)) {
        ("eth_getLogs", Some((from, to))) if from <= dense && dense <= to => {
            error(&truth["id"], -32005, "query returned more than 100 results")
        }
        _ => truth,
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_node_that_is_down_is_passed_over_and_an_outage_uses_up_no_attempts() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(20).await;
    let first = FaultProxy::http(world.chain.address()).await;
    let second = FaultProxy::http(world.chain.address()).await;
    let nodes = vec![first.url(), second.url()];
    // Three attempts only: an outage of many rounds would park every range if it counted.
    let extra = "max_attempts = 3".to_owned();
    let indexing = Settings { nodes, extra, ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;

    first.refuse().await;
    world.history(15).await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;

    first.pass().await;
    let refused = |methods: &[&'static str]| {
        for proxy in [&first, &second] {
            proxy.replace_rules(methods.iter().map(|method| Rule::on(method, Fault::Refuse)));
        }
    };
    // Heads cannot be read, so nothing is claimed; then only logs fail, and what is claimed is given back.
    refused(&["eth_getBlockByNumber", "eth_getLogs", "eth_getBlockReceipts"]);
    world.history(15).await;
    let stuck = world.head().await;
    refused(&["eth_getLogs", "eth_getBlockReceipts"]);
    let before = first.calls("eth_getLogs");
    wait_for("many failed attempts", LONG, || async { first.calls("eth_getLogs") > before + 12 }).await;
    wait_for("it to say why it stands", LONG, || async {
        let progress = indexing.progress(FEES).await.unwrap();
        assert!(progress.complete_to_block < stuck);
        let first = progress.retried.first();
        first.is_some_and(|told| told.from_block == progress.complete_to_block + 1 && !told.error.is_empty())
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
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(30).await;
    let slow = FaultProxy::http(world.chain.address()).await;
    slow.rule(Rule::on("eth_getLogs", Fault::Hang));
    let extra = "verify = \"bloom\"".to_owned();
    let nodes = vec![slow.url(), world.chain.url()];
    let indexing = Settings { nodes, extra, ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_node_that_hangs_does_not_hold_up_the_others() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(20).await;
    let hanging = FaultProxy::http(world.chain.address()).await;
    let nodes = vec![hanging.url(), world.chain.url()];
    // Whoever waits for it as long as he may comes too late.
    let node_timeout_ms = u64::try_from(LONG.as_millis()).unwrap();
    let extra = "verify = \"bloom\"".to_owned();
    let settings = Settings { nodes, extra, node_timeout_ms, ..world.settings(&database) };
    let indexing = settings.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    for question in ["eth_chainId", "eth_getBlockByNumber"] {
        hanging.rule(Rule::on(question, Fault::Hang));
    }
    world.history(5).await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn the_empty_answer_of_a_lagging_node_is_no_empty_range() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(30).await;
    let (lagging, honest) = (Liar::before(world.chain.url()).await, Liar::before(world.chain.url()).await);
    // It names the true head, but its logs and its blocks end at 10; beyond, logs are an empty success, as geth's are.
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
    // The honest one is down at first: nothing may be taken from the lagging one meanwhile.
    honest.lie(|_, _, truth| error(&truth["id"], -32000, "service unavailable"));
    let nodes = vec![lagging.url(), honest.url()];
    let settings = Settings { nodes, sources: false, ..world.settings(&database) };
    let indexing = settings.launch().await;
    let source = proto::indexer::v1::Source {
        name: FEES.to_owned(),
        chain_id: crate::kit::CHAIN_ID,
        contract_address: world.contract.clone(),
        nodes: settings.nodes.clone(),
        ..Default::default()
    };
    let request = proto::indexer::v1::AddSourceRequest { source: Some(source) };
    indexing.client().add_source(request).await.unwrap();
    honest.be_honest();
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    lagging.be_honest();
    indexing.stop().await;
}

#[tokio::test]
async fn a_node_that_lies_about_its_head_stops_nothing_and_fills_nothing() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(20).await;
    let liar = Liar::before(world.chain.url()).await;
    // Twenty blocks ahead, and it shows a block there when asked for that one; but has none in between.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" && params[0] == "latest" {
            let boast = number(&truth["result"]["number"]) + 20;
            truth["result"]["number"] = json!(format!("{boast:#x}"));
        }
        truth
    });
    let nodes = vec![liar.url(), world.chain.url()];
    let indexing = Settings { nodes, ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.history(10).await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;

    // Now it also invents the block itself: ranges are claimed that nobody can read.
    liar.lie(|method, params, mut truth| {
        if method == "eth_getBlockByNumber" {
            let latest = params[0] == "latest";
            if latest || truth["result"].is_null() {
                let boast = if latest { number(&truth["result"]["number"]) + 20 } else { number(&params[0]) };
                if latest || boast.is_multiple_of(2) {
                    let mut block =
                        if latest { truth["result"].clone() } else { json!({ "parentHash": hash(1) }) };
                    block["number"] = json!(format!("{boast:#x}"));
                    block["hash"] = hash(boast);
                    block["timestamp"] = json!("0x1");
                    block["parentHash"] = hash(boast - 1);
                    truth = json!({ "jsonrpc": "2.0", "id": truth["id"], "result": block });
                }
            }
        }
        truth
    });
    world.history(12).await;
    indexing.complete_to(FEES, world.head().await).await;
    liar.be_honest();
    // What it boasted of is forgotten once it is found out.
    let head = world.head().await;
    wait_for("the true head", LONG, || async {
        indexing.progress(FEES).await.is_some_and(|p| (p.head_block, p.lag_blocks) == (head, 0))
    })
    .await;
    world.history(40).await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_boasting_node_does_not_hide_a_reorganisation() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(30).await;
    let liar = Liar::before(world.chain.url()).await;
    // A head far beyond what is final, and a block to show for it; but none in between.
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
    indexing.complete_to(FEES, world.head().await).await;
    for depth in [2, 6, 11] {
        world.chain.call("anvil_reorg", json!([depth, [[world.emission(3), 0]]])).await;
        wait_for("the stored set to equal the chain's", LONG, || async {
            crate::kit::stored(&database).await == world.facts().await
        })
        .await;
        world.history(3).await;
        indexing.complete_to(FEES, world.head().await).await;
    }
    world.assert_stored(&database).await;
    indexing.stop().await;
}

fn hash(of: u64) -> Value {
    json!(format!("0x{:064x}", of + (1 << 40)))
}

#[tokio::test]
async fn blocks_that_an_answer_leaves_out_are_found_by_their_bloom() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(40).await;
    let liar = Liar::before(world.chain.url()).await;
    liar.lie(|method, _, mut truth| {
        if method == "eth_getLogs"
            && let Some(logs) = truth["result"].as_array_mut()
        {
            logs.retain(|log| !number(&log["blockNumber"]).is_multiple_of(4));
        }
        truth
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn an_empty_list_of_receipts_is_no_proof_that_a_block_is_empty() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(20).await;
    let liar = Liar::before(world.chain.url()).await;
    // Its headers are ahead of what it knows of their contents.
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
    liar.be_honest();
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_cut_off_or_doubled_is_mended() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    for _ in 0..12 {
        world.emit(30).await;
    }
    let liar = Liar::before(world.chain.url()).await;
    liar.lie(|method, _, mut truth| {
        if method == "eth_getLogs"
            && let Some(logs) = truth["result"].as_array_mut()
        {
            // Ends in the middle of a block, and says some things twice, out of order.
            logs.truncate(100);
            let twice: Vec<Value> = logs.iter().take(7).cloned().collect();
            logs.extend(twice);
            logs.reverse();
        }
        truth
    });
    let indexing = Settings { nodes: vec![liar.url()], ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;
}

#[tokio::test]
async fn single_logs_that_one_node_leaves_out_are_found_by_the_other() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(40).await;
    let liar = Liar::before(world.chain.url()).await;
    liar.lie(|method, _, mut truth| {
        if method == "eth_getLogs"
            && let Some(logs) = truth["result"].as_array_mut()
        {
            logs.retain(|log| number(&log["logIndex"]) != 1);
        }
        truth
    });
    let nodes = vec![liar.url(), world.chain.url()];
    let indexing = Settings { nodes, ..world.settings(&database) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&database).await;
    indexing.stop().await;

    // With one node alone, receipts find them, where every block is compared with its own.
    let fresh = testkit::mongo().await;
    let extra = "verify = \"receipts\"".to_owned();
    let indexing = Settings { nodes: vec![liar.url()], extra, ..world.settings(&fresh) }.launch().await;
    indexing.complete_to(FEES, world.head().await).await;
    world.assert_stored(&fresh).await;
    indexing.stop().await;
}

#[tokio::test]
async fn a_range_that_no_attempt_can_read_is_parked_and_can_be_requeued() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    world.history(30).await;
    let liar = Liar::before(world.chain.url()).await;
    let tries = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&tries);
    // One range is answered with another contract's log, for ever.
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
    assert!(range.error.contains("not asked for"), "{}", range.error);
    assert_eq!(progress.complete_to_block, 9, "nothing beyond the hole is called complete");
    assert!(tries.load(Ordering::SeqCst) >= 3);
    liar.be_honest();
    let requeue = |from_block| {
        let request = proto::indexer::v1::RequeueRangeRequest { source: FEES.to_owned(), from_block };
        let mut client = indexing.client();
        async move { client.requeue_range(request).await.unwrap().into_inner().requeued }
    };
    assert_eq!(requeue(11).await, 0);
    assert_eq!(requeue(10).await, 1);
    indexing.complete_to(FEES, world.head().await).await;
    assert_eq!(requeue(10).await, 0);
    world.assert_stored(&database).await;
    indexing.stop().await;
}
