//! A thousand workers.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use proto::workercontrol::v1 as pb;
use testkit::wait_for;

use crate::kit::{PATIENCE, TestFleet};

const WORKERS: u32 = 1_000;

#[tokio::test]
async fn a_thousand_workers_cost_a_round_a_small_part_of_its_interval() {
    let mut fleet = TestFleet::new().await;
    fleet.orchestrator.insert("heartbeat_timeout_ms", "3600000".to_owned());
    fleet.orchestrator.insert("health_interval_ms", "1000".to_owned());
    fleet.orchestrator.insert("lock_ttl_ms", "30000".to_owned());
    fleet.workers(
        &(0..WORKERS)
            .map(|n| format!("[[workers]]\nid = 'w{n}'\ncommand = ['sleep', '3600']\n"))
            .collect::<String>(),
    );
    let began = Instant::now();
    let mut first = fleet.start("first").await;
    let how =
        async || first.client().get_orchestrator(pb::GetOrchestratorRequest {}).await.unwrap().into_inner();
    wait_for("all of them to run", PATIENCE, || async { how().await.running == WORKERS }).await;
    println!("{WORKERS} workers started in {:?}", began.elapsed());
    // A few rounds with all of them up: the best one is what a round costs on a machine that others use too.
    let seen = Mutex::new(BTreeSet::new());
    wait_for("some rounds", PATIENCE, || async {
        let round = how().await.last_round.unwrap();
        let mut seen = seen.lock().unwrap();
        seen.insert(Duration::try_from(round).unwrap());
        seen.len() >= 4
    })
    .await;
    let best = *seen.lock().unwrap().first().unwrap();
    println!("a round over {WORKERS} workers takes {best:?}");
    assert!(best < Duration::from_millis(100), "a round takes {best:?}");
    let stopping = Instant::now();
    first.stop().await;
    println!("{WORKERS} workers stopped in {:?}", stopping.elapsed());
}
