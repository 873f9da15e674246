//! The rules of one worker, in every phase.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use types::Backoff;

use super::{EndReason, Member, Phase, Running};
use crate::fleet::view::Status;
use crate::process::Identity;
use crate::registry::Liveness;
use crate::spec::{Source, Spec};

const BACKOFF: Backoff =
    Backoff { base: Duration::from_secs(20), cap: Some(Duration::from_secs(300)), max_tries: 20 };

fn member(now: Instant) -> Member {
    let spec = Spec {
        id: "a".parse().unwrap(),
        command: vec!["x".to_owned()],
        environment: BTreeMap::new(),
        interval: None,
        enabled: true,
    };
    Member::new(spec, Source::File, None, now)
}

fn running(now: Instant) -> Running {
    let identity = Identity { pid: u32::MAX, started: 0 };
    let (incarnation, fingerprint) = ("i-1".to_owned(), "f".to_owned());
    Running { identity, incarnation, fingerprint, child: None, since: now }
}

fn due_in(member: &Member, now: Instant) -> Option<Duration> {
    match member.phase {
        Phase::Due { at } => Some(at - now),
        _ => None,
    }
}

#[test]
fn a_crash_loop_backs_off_and_is_given_up_after_twenty() {
    let now = Instant::now();
    let mut member = member(now);
    let mut waits = Vec::new();
    for _ in 0..19 {
        member.started(running(now));
        assert_eq!(member.ended(now, "exited with status 1", &BACKOFF).as_deref(), Some("i-1"));
        waits.push(due_in(&member, now).unwrap().as_secs());
    }
    assert_eq!(&waits[..6], [20, 40, 80, 160, 300, 300]);
    member.started(running(now));
    member.ended(now, "exited with status 1", &BACKOFF);
    assert!(matches!(member.phase, Phase::GivenUp));
    assert_eq!((member.status(), member.failures), (Status::GivenUp, 20));
    // Only an operator brings it back.
    assert!(!member.reconcile(now));
    assert!(matches!(member.phase, Phase::GivenUp));
    member.start_now(now);
    assert_eq!((due_in(&member, now), member.failures), (Some(Duration::ZERO), 0));
}

#[test]
fn an_exit_with_status_0_is_an_end_like_any_other() {
    let now = Instant::now();
    let mut member = member(now);
    member.started(running(now));
    member.ended(now, "exited with status 0", &BACKOFF);
    assert_eq!(due_in(&member, now), Some(Duration::from_secs(20)));
}

#[test]
fn a_stopped_worker_stays_stopped_and_a_restarted_one_starts_at_once() {
    let (now, kill_at) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    let mut member = member(now);
    member.started(running(now));
    assert!(member.end(EndReason::Restart, kill_at).is_some());
    assert!(member.end(EndReason::Restart, kill_at).is_none(), "it is asked only once");
    assert_eq!(member.status(), Status::Stopping);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!((due_in(&member, now), member.failures), (Some(Duration::ZERO), 0));

    member.started(running(now));
    member.wanted = Some(false);
    assert!(member.reconcile(now), "its process has to be ended");
    member.end(EndReason::Stop, kill_at);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!((member.status(), member.failures), (Status::Stopped, 0));
}

#[test]
fn a_new_command_while_it_stops_is_followed() {
    let (now, kill_at) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    let mut member = member(now);
    member.started(running(now));
    member.wanted = Some(false);
    member.end(EndReason::Stop, kill_at);
    member.wanted = Some(true);
    member.reconcile(now);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!(due_in(&member, now), Some(Duration::ZERO));

    member.started(running(now));
    member.end(EndReason::Restart, kill_at);
    member.removed = true;
    member.reconcile(now);
    member.ended(now, "ended", &BACKOFF);
    assert!(matches!(member.phase, Phase::Stopped));
}

#[test]
fn silence_counts_as_a_failure() {
    let now = Instant::now();
    let mut member = member(now);
    member.started(running(now));
    member.liveness = Liveness { heartbeat: Some("1".to_owned()), ..Liveness::default() };
    assert_eq!(member.status(), Status::Running);
    member.end(EndReason::Silent, now);
    member.ended(now, "was ended by signal 9", &BACKOFF);
    assert_eq!((due_in(&member, now), member.failures), (Some(Duration::from_secs(20)), 1));
    assert!(member.last_error.contains("heartbeat"));
    assert_eq!(member.status(), Status::BackingOff);
}
