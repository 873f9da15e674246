//! The fault proxy does what it says, in front of real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use testkit::{AnvilOptions, Chain, Fault, FaultProxy, Gate, Mining, Rule, wait_for};

const SHORT: Duration = Duration::from_millis(300);

async fn chain_and_proxy() -> (Chain, FaultProxy, reqwest::Client) {
    let chain = testkit::anvil(AnvilOptions { mining: Mining::Manual, ..AnvilOptions::default() }).await;
    let proxy = FaultProxy::http(chain.address()).await;
    (chain, proxy, reqwest::Client::new())
}

async fn call(client: &reqwest::Client, url: &str, method: &str) -> Result<Value, reqwest::Error> {
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": [] });
    client.post(url).json(&request).send().await?.json().await
}

#[tokio::test]
async fn without_rules_the_proxy_is_not_noticed() {
    let (_chain, proxy, client) = chain_and_proxy().await;
    let answer = call(&client, &proxy.url(), "eth_chainId").await.unwrap();
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "result": "0x38" }));
    assert_eq!((proxy.calls("eth_chainId"), proxy.calls("eth_blockNumber")), (1, 0));
}

#[tokio::test]
async fn a_refused_call_never_reaches_the_server_and_a_lost_reply_comes_after_the_effect() {
    let (chain, proxy, client) = chain_and_proxy().await;
    proxy.rule(Rule::on("evm_mine", Fault::Refuse).times(1));
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_err());
    assert_eq!(chain.call("eth_blockNumber", json!([])).await, json!("0x0"));

    proxy.rule(Rule::on("evm_mine", Fault::ReplyLost).times(1));
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_err());
    assert_eq!(chain.call("eth_blockNumber", json!([])).await, json!("0x1"));
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_ok());
    assert_eq!(proxy.calls("evm_mine"), 3);
}

#[tokio::test]
async fn invented_answers_carry_the_callers_id_and_touch_only_their_call_in_a_batch() {
    let (_chain, proxy, client) = chain_and_proxy().await;
    proxy.rule(Rule::on("eth_gasPrice", Fault::RpcError { code: -32000, message: "nonce too low".into() }));
    let answer = call(&client, &proxy.url(), "eth_gasPrice").await.unwrap();
    assert_eq!(answer["error"], json!({ "code": -32000, "message": "nonce too low" }));
    assert_eq!(answer["id"], json!(7));

    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": [] },
        { "jsonrpc": "2.0", "id": 2, "method": "eth_gasPrice", "params": [] },
    ]);
    let answers: Value = client.post(proxy.url()).json(&batch).send().await.unwrap().json().await.unwrap();
    assert_eq!(answers[0], json!({ "jsonrpc": "2.0", "id": 1, "result": "0x38" }));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32000)));

    proxy.rule(Rule::on("/health", Fault::Answer { status: 503, body: "away".into() }));
    let answer = client.get(format!("{}/health", proxy.url())).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (503, "away".to_owned()));
}

#[tokio::test]
async fn a_held_call_waits_until_it_is_released() {
    let (chain, proxy, client) = chain_and_proxy().await;
    let hold = Gate::new();
    proxy.rule(Rule::on("evm_mine", Fault::Held(hold.clone())));
    let url = proxy.url();
    let pending = tokio::spawn(async move { call(&client, &url, "evm_mine").await });
    hold.caught(1).await;
    assert_eq!(chain.call("eth_blockNumber", json!([])).await, json!("0x0"));
    hold.release();
    assert!(pending.await.unwrap().is_ok());
    assert_eq!(chain.call("eth_blockNumber", json!([])).await, json!("0x1"));
}

#[tokio::test]
async fn a_callback_runs_at_its_call_before_or_after_the_effect() {
    let (chain, proxy, client) = chain_and_proxy().await;
    let ran = Arc::new(AtomicUsize::new(0));
    let (before, after) = (Arc::clone(&ran), Arc::clone(&ran));
    let add = |n: usize, counter: Arc<AtomicUsize>| {
        move || {
            counter.fetch_add(n, Ordering::SeqCst);
        }
    };
    proxy.rule(Rule::on("evm_mine", Fault::Refuse).from_call(2).times(1).before(add(1, before)));
    proxy.rule(Rule::on("evm_mine", Fault::ReplyLost).from_call(2).times(1).after(add(10, after)));
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_ok());
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_err());
    assert_eq!((ran.load(Ordering::SeqCst), blocks(&chain).await), (1, json!("0x1")));
    assert!(call(&client, &proxy.url(), "evm_mine").await.is_err());
    assert_eq!((ran.load(Ordering::SeqCst), blocks(&chain).await), (11, json!("0x2")));
}

async fn blocks(chain: &Chain) -> Value {
    chain.call("eth_blockNumber", json!([])).await
}

#[tokio::test]
async fn a_database_behind_the_proxy_goes_away_and_comes_back() {
    let database = testkit::postgres().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute("CREATE TABLE t (n INT)").await.unwrap();

    proxy.refuse().await;
    assert!(connection.execute("SELECT 1").await.is_err());
    let error = PgConnection::connect(&url).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("refused"), "{error}");

    proxy.pass().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    proxy.hang().await;
    assert!(tokio::time::timeout(SHORT, connection.execute("SELECT 1")).await.is_err());
    assert!(tokio::time::timeout(SHORT, PgConnection::connect(&url)).await.is_err());

    proxy.pass().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    proxy.cut().await;
    assert!(connection.execute("SELECT 1").await.is_err());
    assert!(PgConnection::connect(&url).await.is_ok());
}

#[tokio::test]
async fn a_commit_whose_acknowledgement_is_lost_has_happened() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    pool.execute("CREATE TABLE t (n INT)").await.unwrap();
    let proxy = FaultProxy::tcp(database.address()).await;
    let mut connection = PgConnection::connect(&database.url_at(&proxy.address())).await.unwrap();
    proxy.lose_replies().await;
    assert!(connection.execute("INSERT INTO t VALUES (1)").await.is_err());
    wait_for("the row whose acknowledgement was lost", Duration::from_secs(10), || async {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM t").fetch_one(&pool).await.unwrap() == 1
    })
    .await;
}
