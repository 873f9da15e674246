//! Listing over gRPC and HTTP.

use proto::indexer::v1 as pb;
use serde_json::json;

use crate::kit::{
    CHAIN_ID, FEES, LONG, Settings, TRANSFER, World, counted, profile, selector, source, statements,
};

#[tokio::test]
async fn http_answers_as_the_fee_collector_did() {
    let (world, database) = World::with_history(30).await;
    let indexing = world.settings(&database).launch().await;
    indexing.caught_up(&world).await;
    assert_eq!(indexing.get("/").await, (200, "Api Running".to_owned()));
    let (status, body) = indexing.get("/fees?integrator=polygon").await;
    assert_eq!(status, 400, "{body}");

    let facts: Vec<_> = world.facts().await.into_iter().collect();
    let total = facts.len();
    let all = indexing.fees("").await;
    assert_eq!(
        all["pagination"],
        json!({ "page": 1, "limit": 100, "total": total, "totalPages": total.div_ceil(100) })
    );
    let newest = &all["data"][0];
    let last = facts.last().unwrap();
    assert_eq!(newest["chainId"], CHAIN_ID);
    assert_eq!(newest["blockNumber"], last.0);
    assert_eq!(newest["blockHash"], last.1);
    assert_eq!(newest["transactionHash"], last.2);
    assert_eq!(newest["logIndex"], last.3);
    assert_eq!(newest["integratorFee"], last.4);
    assert_eq!(newest["integrator"], "0x000000000000000000000000000000000000BbBB");

    // Every page of seven, one after the other, is the whole list: block, then log index, both descending.
    let mut listed = Vec::new();
    for page in 1..=total.div_ceil(7) {
        let answer = indexing.fees(&format!("?integrator=137&page={page}&limit=7")).await;
        for fee in answer["data"].as_array().unwrap() {
            listed.push((fee["blockNumber"].as_u64().unwrap(), fee["logIndex"].as_u64().unwrap()));
        }
    }
    let mut expected: Vec<_> = facts.iter().map(|fact| (fact.0, fact.3)).collect();
    expected.reverse();
    assert_eq!(listed, expected);
    let beyond = indexing.fees("?page=999999&limit=100").await;
    assert_eq!(beyond["data"], json!([]));
    assert_eq!(indexing.fees("?integrator=1").await["pagination"]["total"], 0);
    indexing.stop().await;
}

#[tokio::test]
async fn deep_pages_are_found_through_the_ledger() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    for block in 0..24 {
        world.emit(if block % 5 == 0 { 0 } else { 150 }).await;
    }
    let indexing = Settings { batch: 3, ..world.settings(&database) }.launch().await;
    indexing.caught_up(&world).await;
    let mut expected: Vec<_> = world.facts().await.into_iter().map(|fact| (fact.0, fact.3)).collect();
    expected.reverse();
    assert!(expected.len() > 2_500, "deep enough to leave the first thousand");
    for page in (1..=expected.len().div_ceil(50)).rev().step_by(3) {
        let answer = indexing.fees(&format!("?page={page}&limit=50")).await;
        let got: Vec<_> = answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fee| (fee["blockNumber"].as_u64().unwrap(), fee["logIndex"].as_u64().unwrap()))
            .collect();
        let begin = (page - 1) * 50;
        assert_eq!(got, expected[begin..(begin + 50).min(expected.len())], "page {page}");
    }
    indexing.stop().await;
}

#[tokio::test]
async fn fee_events_are_paged_and_filtered_over_grpc() {
    let (world, database) = World::with_history(20).await;
    let special = format!("{:064x}", 0x1234);
    let data = format!(
        "0x{}{special}{:064x}{:064x}{:064x}",
        selector("collectTokenFees(address,uint256,uint256,address)"),
        77,
        33,
        0x9999
    );
    world.mined(json!({ "to": world.contract, "data": data, "gas": "0x30d40" })).await;
    let indexing = world.settings(&database).launch().await;
    let head = world.head().await;
    indexing.complete_to(FEES, head).await;
    let mut client = indexing.client();
    let mut listed = Vec::new();
    let mut request = pb::ListFeeEventsRequest { chain_id: CHAIN_ID, page_size: 9, ..Default::default() };
    loop {
        let page = client.list_fee_events(request.clone()).await.unwrap().into_inner();
        listed.extend(page.events.iter().map(|fee| (fee.block_number, u64::from(fee.log_index))));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let mut expected: Vec<_> = world.facts().await.into_iter().map(|fact| (fact.0, fact.3)).collect();
    expected.reverse();
    assert_eq!(listed, expected);

    let only = pb::ListFeeEventsRequest { integrator: format!("0x{:040x}", 0x9999), ..Default::default() };
    let found = client.list_fee_events(only).await.unwrap().into_inner().events;
    assert_eq!(found.len(), 1);
    let fee = &found[0];
    assert_eq!((fee.integrator_fee.as_str(), fee.lifi_fee.as_str()), ("77", "33"));
    assert!(fee.token.ends_with("1234") && fee.block_time.is_some());
    let bounded =
        pb::ListFeeEventsRequest { chain_id: CHAIN_ID, from_block: 5, to_block: 8, ..Default::default() };
    let found = client.list_fee_events(bounded).await.unwrap().into_inner().events;
    assert!(!found.is_empty() && found.iter().all(|fee| (5..=8).contains(&fee.block_number)));

    let wrong = [
        (pb::ListFeeEventsRequest { page_size: 501, ..Default::default() }, "page_size"),
        (pb::ListFeeEventsRequest { integrator: "nobody".to_owned(), ..Default::default() }, "integrator"),
        (pb::ListFeeEventsRequest { from_block: 5, ..Default::default() }, "chain_id"),
        (
            pb::ListFeeEventsRequest { chain_id: 1, from_block: 5, to_block: 4, ..Default::default() },
            "to_block",
        ),
        (pb::ListFeeEventsRequest { page_token: request.page_token, ..Default::default() }, "page_token"),
    ];
    for (request, field) in wrong {
        let refused = client.list_fee_events(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().starts_with(field), "{field}: {refused}");
    }
    indexing.stop().await;
}

#[tokio::test]
async fn events_of_any_contract_are_decoded_and_filtered() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let token = world.token().await;
    let first = world.head().await;
    for step in 1..=12u64 {
        let receiver = 0x100 + step % 3;
        let data =
            format!("0x{}{receiver:064x}{:064x}", selector("mint(address,uint256)"), step * 1_000_000_007);
        world.mined(json!({ "to": token, "data": data, "gas": "0x186a0" })).await;
    }
    let indexing = world.settings(&database).launch().await;
    let mut client = indexing.client();
    let source = pb::Source {
        event_signature: TRANSFER.to_owned(),
        start_block: first,
        ..source("token", &token, vec![world.chain.url()])
    };
    client.add_source(pb::AddSourceRequest { source: Some(source) }).await.unwrap();
    let progress = indexing.complete_to("token", world.head().await).await;
    assert_eq!(progress.events, 12);
    let all = pb::ListEventsRequest { source: "token".to_owned(), ..Default::default() };
    let events = client.list_events(all.clone()).await.unwrap().into_inner().events;
    assert_eq!(events.len(), 12);
    let text = |event: &pb::Event, name: &str| {
        let fields = &event.parameters.as_ref().unwrap().fields;
        match fields[name].kind.as_ref().unwrap() {
            prost_types::value::Kind::StringValue(text) => text.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(text(&events[0], "value"), (12u64 * 1_000_000_007).to_string());
    assert_eq!(text(&events[0], "from"), "0x0000000000000000000000000000000000000000");
    assert_eq!(events[0].contract_address.to_lowercase(), token.to_lowercase());

    let to = format!("0x{:040x}", 0x101);
    let filtered = pb::ListEventsRequest { parameters: [("to".to_owned(), to)].into(), ..all.clone() };
    let found = client.list_events(filtered).await.unwrap().into_inner().events;
    assert_eq!(found.len(), 4);

    // By time: the sixth newest event's own second begins a page that ends with it.
    let time = events[5].block_time;
    let since = pb::ListEventsRequest { from_time: time, ..all.clone() };
    let found = client.list_events(since).await.unwrap().into_inner().events;
    let newer =
        events.iter().filter(|event| event.block_time.unwrap().seconds >= time.unwrap().seconds).count();
    assert_eq!(found.len(), newer);
    let until = pb::ListEventsRequest { to_time: time, ..all.clone() };
    let found = client.list_events(until).await.unwrap().into_inner().events;
    assert_eq!(found.len(), 12 - newer);

    let wrong = pb::ListEventsRequest { parameters: [("value".to_owned(), "1".to_owned())].into(), ..all };
    let refused = client.list_events(wrong).await.unwrap_err();
    assert!(refused.message().starts_with("parameters.value"), "{refused}");
    let nameless = client.list_events(pb::ListEventsRequest::default()).await.unwrap_err();
    assert!(nameless.message().starts_with("source"), "{nameless}");
    indexing.stop().await;
}

#[tokio::test]
async fn a_page_at_any_depth_looks_at_no_more_than_it_shows() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    for _ in 0..24 {
        world.emit(150).await;
    }
    let indexing = Settings { batch: 3, ..world.settings(&database) }.launch().await;
    let head = world.head().await;
    indexing.complete_to(FEES, head).await;
    let rows = database.database().await;
    let cursors = rows.collection::<mongodb::bson::Document>("lastBlock");
    testkit::wait_for("the indexes for filters", LONG, || async {
        let cursor = cursors.find_one(mongodb::bson::doc! { "_id": FEES }).await.unwrap().unwrap();
        cursor.get_bool("indexed") == Ok(true)
    })
    .await;
    let mut client = indexing.client();
    let plain = pb::ListFeeEventsRequest { chain_id: CHAIN_ID, page_size: 100, ..Default::default() };
    let integrator = pb::ListFeeEventsRequest { integrator: format!("0x{:040x}", 0xbbbb), ..plain.clone() };
    for mut request in [plain, integrator] {
        let mut shown = 0;
        loop {
            profile(&rows, "feeEvents").await;
            let page = client.list_fee_events(request.clone()).await.unwrap().into_inner();
            let asked = statements(&rows).await;
            assert!(counted(&asked, "keysExamined") <= 102, "{shown}: {asked:?}");
            assert!(counted(&asked, "docsExamined") <= 102, "{shown}: {asked:?}");
            shown += page.events.len();
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        assert_eq!(shown, 24 * 150);
    }
    // By number: as far as the range that holds the page, not as far as the page.
    profile(&rows, "feeEvents").await;
    assert_eq!(indexing.fees("?page=35&limit=100").await["data"].as_array().unwrap().len(), 100);
    let asked = statements(&rows).await;
    assert!(counted(&asked, "keysExamined") <= 3 * 150 + 102, "{asked:?}");

    // Later than everything that is stored: nothing is searched for it.
    profile(&rows, "feeEvents").await;
    let later = prost_types::Timestamp { seconds: 32_503_680_000, nanos: 0 };
    let since =
        pb::ListEventsRequest { source: FEES.to_owned(), from_time: Some(later), ..Default::default() };
    assert!(client.list_events(since).await.unwrap().into_inner().events.is_empty());
    let asked = statements(&rows).await;
    assert!(counted(&asked, "docsExamined") <= 1, "{asked:?}");
    indexing.stop().await;
}

#[tokio::test]
async fn two_fee_collectors_on_one_chain_are_listed_as_one() {
    let (world, database) = (World::new().await, testkit::mongo().await);
    let other = world.collector().await;
    for _ in 0..4 {
        world.emit(5).await;
        let mut emission = world.emission(3);
        emission["to"] = json!(other);
        world.mined(emission).await;
    }
    let indexing = world.settings(&database).launch().await;
    let source = source("more-fees", &other, vec![world.chain.url()]);
    indexing.client().add_source(pb::AddSourceRequest { source: Some(source) }).await.unwrap();
    let head = world.head().await;
    indexing.complete_to(FEES, head).await;
    indexing.complete_to("more-fees", head).await;
    let listed = indexing.fees("?limit=10&page=2").await;
    assert_eq!(listed["pagination"], json!({ "page": 2, "limit": 10, "total": 32, "totalPages": 4 }));
    let contracts: std::collections::BTreeSet<_> =
        listed["data"].as_array().unwrap().iter().map(|fee| fee["contractAddress"].to_string()).collect();
    assert_eq!((listed["data"].as_array().unwrap().len(), contracts.len()), (10, 2));
    assert_eq!(indexing.fees("?page=99999999999999999999").await["data"], json!([]));
    // Under the name of one there is nothing of the other.
    let of = |contract: &str| {
        let contract_address = contract.to_owned();
        let request =
            pb::ListEventsRequest { source: FEES.to_owned(), contract_address, ..Default::default() };
        let mut client = indexing.client();
        async move { client.list_events(request).await.unwrap().into_inner().events.len() }
    };
    assert_eq!((of("").await, of(&world.contract).await, of(&other).await), (20, 20, 0));
    indexing.stop().await;
}
