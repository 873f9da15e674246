//! What operators watch: the gauges that are read from the database, whoever follows the chains.

use confirmation::worker::gauges;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::env::TestEnv;

// On one thread, because the recorder is this test's own.
#[tokio::test]
async fn gauges_are_kept_without_a_loop_over_the_chain() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let env = TestEnv::new().await;
    let shown = async |series: &str| {
        gauges::tick(&env.pool).await.unwrap();
        let text = recorder.handle().render();
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
    };
    let halted = r#"bursar_confirmation_chain_halted{chain="bsc"}"#;
    assert_eq!(shown(halted).await, Some(0.0));
    for status in ["waiting", "included"] {
        for name in ["watches", "oldest_watch_seconds", "delayed_watches"] {
            let series = format!(r#"bursar_confirmation_{name}{{chain="bsc",status="{status}"}}"#);
            assert_eq!(shown(&series).await, Some(0.0), "{series}");
        }
    }
    sqlx::query(
        "INSERT INTO chain_loops (chain, halted_at, halted_reason) VALUES ('bsc', now(), 'a final block was undone')
         ON CONFLICT (chain) DO UPDATE SET halted_at = now(), halted_reason = excluded.halted_reason",
    )
    .execute(&env.pool)
    .await
    .unwrap();
    assert_eq!(shown(halted).await, Some(1.0));
}
