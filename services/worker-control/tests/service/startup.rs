//! Start and health, with stores that go away and come back; the statements against the migrated database.

use std::time::Duration;

use testkit::wait_for;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use worker_control::WorkerControl;

fn config(redis: &str, database: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[server.health]\ninterval_ms = 50\ntimeout_ms = 1000\n\
         [database]\nurl = \"{database}\"\n[redis]\nurl = \"{redis}\"\ntimeout_ms = 500\n\
         [http]\nlisten = \"127.0.0.1:0\"\n"
    )
}

#[tokio::test]
async fn health_follows_redis_down_and_up_again() {
    let database = testkit::postgres().await;
    db::migrate::run(&database.pool().await, &worker_control::MIGRATOR).await.expect("migrations apply");
    let mut redis = testkit::redis_server().await;
    let config = config(redis.url(), database.url());
    let running = service::launch::<WorkerControl>(&config).await.expect("worker control starts");
    let channel = Channel::from_shared(running.url()).unwrap().connect().await.unwrap();
    let client = HealthClient::new(channel);

    let becomes = |name: &'static str, expected: ServingStatus| {
        let client = client.clone();
        wait_for("health to follow Redis", Duration::from_secs(20), move || {
            let mut client = client.clone();
            async move {
                let answer = client.check(HealthCheckRequest { service: name.to_owned() }).await;
                answer.is_ok_and(|a| a.into_inner().status() == expected)
            }
        })
    };
    becomes("", ServingStatus::Serving).await;
    redis.stop().await;
    becomes("bursar.workercontrol.v1.WorkerService", ServingStatus::NotServing).await;
    becomes("redis", ServingStatus::NotServing).await;
    redis.start().await;
    becomes("", ServingStatus::Serving).await;
    running.stop().await.expect("a clean stop");
}

#[tokio::test]
async fn redis_down_at_start_is_one_clear_refusal() {
    let database = testkit::postgres().await;
    db::migrate::run(&database.pool().await, &worker_control::MIGRATOR).await.expect("migrations apply");
    let mut redis = testkit::redis_server().await;
    let url = redis.url().to_owned();
    redis.stop().await;
    let refused =
        service::launch::<WorkerControl>(&config(&url, database.url())).await.expect_err("no Redis");
    assert!(refused.message().contains("Redis does not answer"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_fits_the_tables() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &worker_control::MIGRATOR).await.expect("migrations apply");
    testkit::check_statements(&pool, env!("CARGO_MANIFEST_DIR")).await;
}
