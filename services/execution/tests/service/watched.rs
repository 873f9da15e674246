//! What operators watch: the gauges read off the database, and the counters of locks.

use execution::worker::gauges::Gauges;
use metrics_exporter_prometheus::PrometheusBuilder;
use testkit::Mining;
use worker::Tick as _;

use crate::signer::Script;
use crate::world::World;

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

// On one thread, because the recorder is this test's own.
#[tokio::test]
async fn gauges_tell_what_the_database_holds_of_every_chain_and_go_back_to_zero() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let world = World::new(Mining::Manual).await;
    world.hot_wallet(0).await;
    let mut gauges = Gauges::new(world.pool.clone());
    let mut count = async || {
        gauges.tick().await.unwrap();
        recorder.handle().render()
    };
    let (pending, parked) = (
        r#"bursar_execution_jobs{chain="bsc",queue="withdrawal",status="pending"}"#,
        r#"bursar_execution_jobs{chain="bsc",queue="withdrawal",status="parked"}"#,
    );
    let (due, future) = (
        r#"bursar_queue_due_jobs{queue="withdrawal/bsc"}"#,
        r#"bursar_queue_future_jobs{queue="withdrawal/bsc"}"#,
    );
    let halted = r#"bursar_execution_lanes_halted{chain="bsc"}"#;
    let idle = count().await;
    for series in [pending, parked, due, future, halted] {
        assert_eq!(value(&idle, series), Some(0.0), "{series} in {idle}");
    }
    for series in [
        r#"bursar_execution_tries_failed_total{queue="withdrawal",chain="bsc"}"#,
        r#"bursar_execution_jobs_finished_total{queue="withdrawal",chain="bsc",status="failed"}"#,
        r#"bursar_execution_steps_total{chain="bsc",step="fence",outcome="lost"}"#,
    ] {
        assert_eq!(value(&idle, series), Some(0.0), "{series} in {idle}");
    }

    let (betrayed, _) = world.pay_somebody().await;
    let waiting = count().await;
    assert_eq!((value(&waiting, pending), value(&waiting, due)), (Some(1.0), Some(1.0)), "{waiting}");

    world.signer.script([Script::Betray]);
    world.work_until(betrayed, "parked").await;
    sqlx::query("UPDATE lanes SET halted_reason = 'a stranger', halted_at = now()")
        .execute(&world.pool)
        .await
        .unwrap();
    let stopped = count().await;
    assert_eq!((value(&stopped, pending), value(&stopped, parked)), (Some(0.0), Some(1.0)), "{stopped}");
    assert_eq!((value(&stopped, due), value(&stopped, halted)), (Some(0.0), Some(1.0)), "{stopped}");
    let held = r#"bursar_execution_steps_total{chain="bsc",step="fence",outcome="held"}"#;
    assert!(value(&stopped, held).is_some_and(|held| held > 0.0), "{stopped}");

    sqlx::query("UPDATE lanes SET halted_reason = NULL, halted_at = NULL")
        .execute(&world.pool)
        .await
        .unwrap();
    assert_eq!(value(&count().await, halted), Some(0.0));
}
