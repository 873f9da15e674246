//! The time of day jumps while the orchestrator and its workers run; everything that waits goes by the monotonic clock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;

use crate::kit::{TestFleet, signal};

/// `libfaketime` of Debian's package `faketime`, which `scripts/install-tools test` installs.
fn library() -> String {
    let mut places = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = places.find_map(|fleet| {
        let file = fleet.path().join("faketime/libfaketime.so.1");
        file.exists().then_some(file)
    });
    let found = found.expect("libfaketime is not installed; `scripts/install-tools test` installs it");
    found.display().to_string()
}

/// The clock of a test's processes, set by a file.
struct Clock(PathBuf);

impl Clock {
    fn of(fleet: &mut TestFleet) -> Self {
        let clock = Self(fleet.dir.path().join("clock"));
        clock.set("+0");
        fleet.environment = vec![
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", clock.0.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // The time of day alone jumps; that is what a clock that is set does.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        clock
    }

    /// Read by every process at its next look at the clock, so it is replaced whole.
    fn set(&self, offset: &str) {
        let draft = self.0.with_extension("new");
        std::fs::write(&draft, format!("{offset}\n")).unwrap();
        std::fs::rename(&draft, &self.0).unwrap();
    }
}

fn off_by_days(at: Option<DateTime<Utc>>) -> i64 {
    // To the nearest day.
    at.map_or(0, |at| ((at - Utc::now()).num_hours() + 30 * 24 + 12).div_euclid(24) - 30)
}

fn heard(worker: &pb::Worker) -> i64 {
    off_by_days(worker.heartbeat_at.as_ref().and_then(|at| proto::time::datetime(at).ok()))
}

fn next_start(worker: &pb::Worker) -> i64 {
    off_by_days(worker.next_start_at.as_ref().and_then(|at| proto::time::datetime(at).ok()))
}

#[tokio::test]
async fn a_clock_that_jumps_moves_no_lock_no_backoff_and_no_timeout() {
    let mut fleet = TestFleet::new().await;
    fleet.orchestrator.insert("backoff_base_ms", "2000".to_owned());
    fleet.orchestrator.insert("backoff_cap_ms", "2000".to_owned());
    let clock = Clock::of(&mut fleet);
    fleet.workers(&fleet.shell(&[("steady", "steady"), ("killed", "steady"), ("hang", "hang")]));
    let first = fleet.start("first").await;
    let (epoch, steady) = (first.epoch().await, first.runs("steady").await.pid);
    for (offset, days) in [("+30d", 30), ("-30d", -30)] {
        let killed = first.runs("killed").await.pid;
        let hang = first.runs("hang").await;
        let hanging = Instant::now();
        clock.set(offset);
        // The workers have the new time, and so has the orchestrator.
        first.worker_is("steady", offset, |worker| heard(worker) == days).await;
        let began = Instant::now();
        signal(killed, Signal::SIGKILL);
        let waits = |w: &pb::Worker| w.status() == WorkerStatus::BackingOff;
        let waiting = first.worker_is("killed", "backing off", waits).await;
        assert_eq!(next_start(&waiting), days, "{offset}");
        first.has_other_pid("killed", killed).await;
        let waited = began.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(20)).contains(&waited), "{offset}: {waited:?}");
        // One that says nothing is ended after its time, not at once and not in a month. It was heard when it started, and its
        // heartbeat lives for 3 s.
        first.has_other_pid("hang", hang.pid).await;
        let silent = hanging.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(30)).contains(&silent), "{offset}: {silent:?}");
    }
    assert_eq!(first.runs("steady").await.pid, steady);
    assert_eq!(first.epoch().await, epoch, "the lock was never lost");
    assert_eq!(fleet.starts("steady").len(), 1);
}
