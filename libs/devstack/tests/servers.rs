//! Every server on a real start: ready means ready, data survives a restart, and a stop leaves nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use devstack::{
    Anvil, AnvilOptions, Error, Identity, JsonRpc, Lifetime, Mongo, MongoOptions, Postgres, PostgresOptions,
    Redis, RedisOptions, Tools,
};
use mongodb::bson::doc;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn durable_postgres(dir: &Path) -> PostgresOptions {
    PostgresOptions { dir: dir.to_owned(), durable: true, ..PostgresOptions::default() }
}

async fn redis_says(port: u16, command: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
    let mut answer = vec![0; 256];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

async fn rpc(url: &str, method: &str, params: Value) -> Value {
    JsonRpc::new(url).unwrap().call(method, params).await.unwrap()
}

#[tokio::test]
async fn postgres_starts_again_on_its_directory_with_the_same_password() {
    let dir = scratch();
    let mut first = Postgres::start(&Tools::locate(), &durable_postgres(dir.path())).await.unwrap();
    let (identity, password) = (first.identity(), password_in(&first.url()));
    assert!(identity.is_alive());
    first.stop().await.unwrap();
    assert!(!identity.is_alive());

    let again = PostgresOptions { port: Some(first.port()), ..durable_postgres(dir.path()) };
    let mut second = Postgres::start(&Tools::locate(), &again).await.unwrap();
    assert_eq!(second.port(), first.port());
    assert_eq!(password_in(&second.url()), password);
    second.stop().await.unwrap();
}

fn password_in(url: &str) -> String {
    url.split([':', '@']).nth(2).unwrap().to_owned()
}

#[tokio::test]
async fn postgres_starts_after_a_crash_that_left_its_lock_file() {
    let dir = scratch();
    let mut server = Postgres::start(&Tools::locate(), &durable_postgres(dir.path())).await.unwrap();
    server.kill().await.unwrap();
    // The pid in the lock file now belongs to somebody else: this test.
    let lock = dir.path().join("data/postmaster.pid");
    let text = std::fs::read_to_string(&lock).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    std::fs::write(&lock, format!("{}\n{rest}", std::process::id())).unwrap();
    let mut server = Postgres::start(&Tools::locate(), &durable_postgres(dir.path())).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_postgres_on_one_directory_is_refused() {
    let dir = scratch();
    let mut server = Postgres::start(&Tools::locate(), &durable_postgres(dir.path())).await.unwrap();
    let error = Postgres::start(&Tools::locate(), &durable_postgres(dir.path())).await.unwrap_err();
    assert!(matches!(error, Error::AlreadyRunning { pid, .. } if pid == server.pid()), "{error}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_closed_to_the_servers_user_is_no_obstacle() {
    let home = scratch(); // mode 0700, as a home directory
    let dir = home.path().join("clone/.bursar/postgres");
    let mut server = Postgres::start(&Tools::locate(), &durable_postgres(&dir)).await.unwrap();
    server.stop().await.unwrap();
    if let Ok(elsewhere) = std::fs::read_to_string(dir.join("elsewhere")) {
        assert!(elsewhere.starts_with("/var/tmp/bursar-"), "{elsewhere}");
        let mut again = Postgres::start(&Tools::locate(), &durable_postgres(&dir)).await.unwrap();
        again.stop().await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("elsewhere")).unwrap(), elsewhere);
        std::fs::remove_dir_all(elsewhere).unwrap();
    }
}

#[tokio::test]
async fn a_port_that_was_asked_for_and_is_taken_is_a_clear_error() {
    let dir = scratch();
    let holder = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    let options = RedisOptions { dir: dir.path().to_owned(), port: Some(port), ..RedisOptions::default() };
    let error = Redis::start(&Tools::locate(), &options).await.unwrap_err();
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}: the port is in use")), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/WiredTiger"), "not a database").unwrap();
    std::fs::write(dir.path().join("data/storage.bson"), "neither").unwrap();
    let options = MongoOptions { dir: dir.path().to_owned(), ..MongoOptions::default() };
    let error = Mongo::start(&Tools::locate(), &options).await.unwrap_err();
    assert!(
        matches!(&error, Error::Exited { part, tail, .. } if part == "mongodb" && !tail.is_empty()),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_program_is_named_with_the_way_to_get_it() {
    let dir = scratch();
    let options = MongoOptions { dir: dir.path().to_owned(), ..MongoOptions::default() };
    let error = Mongo::start(&Tools::in_dirs(Vec::new()), &options).await.unwrap_err().to_string();
    assert!(error.starts_with("mongod was not found") && error.contains("scripts/install-tools"), "{error}");
}

#[tokio::test]
async fn redis_keeps_its_data_over_a_restart() {
    let dir = scratch();
    let options = RedisOptions { dir: dir.path().to_owned(), durable: true, ..RedisOptions::default() };
    let mut server = Redis::start(&Tools::locate(), &options).await.unwrap();
    assert_eq!(redis_says(server.port(), "SET kept 7").await, "+OK\r\n");
    server.stop().await.unwrap();
    let mut server = Redis::start(&Tools::locate(), &options).await.unwrap();
    assert_eq!(redis_says(server.port(), "GET kept").await, "$1\r\n7\r\n");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn mongodb_has_transactions_and_moves_with_its_data_to_another_port() {
    let dir = scratch();
    let options = MongoOptions { dir: dir.path().to_owned(), ..MongoOptions::default() };
    let mut server = Mongo::start(&Tools::locate(), &options).await.unwrap();
    let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let things = client.database("d").collection("things");
    things.insert_one(doc! { "n": 7 }).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    let first_port = server.port();
    let asked = Instant::now();
    server.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "a stop must not wait for other members");

    let mut server = Mongo::start(&Tools::locate(), &options).await.unwrap();
    assert_ne!(server.port(), first_port);
    let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
    let things = client.database("d").collection::<mongodb::bson::Document>("things");
    assert_eq!(things.count_documents(doc! { "n": 7 }).await.unwrap(), 1);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn anvil_keeps_its_chain_over_a_restart_and_finality_moves() {
    let dir = scratch();
    let options = AnvilOptions { dir: dir.path().to_owned(), keep_state: true, ..AnvilOptions::default() };
    let mut server = Anvil::start(&Tools::locate(), &options).await.unwrap();
    assert_eq!(rpc(&server.url(), "eth_chainId", json!([])).await, json!("0x38"));
    rpc(&server.url(), "anvil_mine", json!(["0xa"])).await;
    let finalized = rpc(&server.url(), "eth_getBlockByNumber", json!(["finalized", false])).await;
    assert_eq!(finalized["number"], json!("0x8"));
    let block = rpc(&server.url(), "eth_getBlockByNumber", json!(["0x5", false])).await;
    server.stop().await.unwrap();

    let mut server = Anvil::start(&Tools::locate(), &options).await.unwrap();
    assert_eq!(rpc(&server.url(), "eth_blockNumber", json!([])).await, json!("0xa"));
    let again = rpc(&server.url(), "eth_getBlockByNumber", json!(["0x5", false])).await;
    assert_eq!(again["hash"], block["hash"]);
    server.stop().await.unwrap();

    // Killed while it wrote: the chain as it was at the last start is better than none.
    std::fs::write(dir.path().join("state.json"), "{\"block\": {").unwrap();
    let mut server = Anvil::start(&Tools::locate(), &options).await.unwrap();
    assert_eq!(rpc(&server.url(), "eth_blockNumber", json!([])).await, json!("0xa"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_detached_server_outlives_its_handle_and_can_be_stopped_by_identity() {
    let dir = scratch();
    let lifetime = Lifetime::Detached;
    let options = RedisOptions { dir: dir.path().to_owned(), lifetime, ..RedisOptions::default() };
    let server = Redis::start(&Tools::locate(), &options).await.unwrap();
    let (identity, port) = (server.identity(), server.port());
    drop(server);
    assert_eq!(redis_says(port, "PING").await, "+PONG\r\n");
    let stranger = Identity { started: identity.started + 1, ..identity };
    stranger.stop("redis", &Redis::STOP).await.unwrap();
    assert!(identity.is_alive(), "another start time is another process, which must not be signalled");
    identity.stop("redis", &Redis::STOP).await.unwrap();
    assert!(!identity.is_alive());
}

#[tokio::test]
async fn dropping_the_handle_of_an_owned_server_ends_it() {
    let dir = scratch();
    let options = RedisOptions { dir: dir.path().to_owned(), ..RedisOptions::default() };
    let server = Redis::start(&Tools::locate(), &options).await.unwrap();
    let identity = server.identity();
    drop(server);
    assert!(!identity.is_alive());
}
