//! The rules of one worker, in every phase.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use types::Backoff;

use super::member::{Member, Phase, Running, Why};
use super::process::Identity;
use super::registry::Signs;
use super::spec::{Source, Spec};
use super::view::Status;

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
    // Only a person brings it back.
    assert!(!member.settle(now));
    assert!(matches!(member.phase, Phase::GivenUp));
    member.revive(now);
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
fn what_is_told_to_stop_stays_stopped_and_what_is_renewed_starts_at_once() {
    let (now, kill_at) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    let mut member = member(now);
    member.started(running(now));
    assert!(member.end(Why::Renew, kill_at).is_some());
    assert!(member.end(Why::Renew, kill_at).is_none(), "told once");
    assert_eq!(member.status(), Status::Stopping);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!((due_in(&member, now), member.failures), (Some(Duration::ZERO), 0));

    member.started(running(now));
    member.wanted = Some(false);
    assert!(member.settle(now), "its process has to be ended");
    member.end(Why::Stop, kill_at);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!((member.status(), member.failures), (Status::Stopped, 0));
}

#[test]
fn a_change_of_mind_while_it_stops_is_followed() {
    let (now, kill_at) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    let mut member = member(now);
    member.started(running(now));
    member.wanted = Some(false);
    member.end(Why::Stop, kill_at);
    member.wanted = Some(true);
    member.settle(now);
    member.ended(now, "ended", &BACKOFF);
    assert_eq!(due_in(&member, now), Some(Duration::ZERO));

    member.started(running(now));
    member.end(Why::Renew, kill_at);
    member.removed = true;
    member.settle(now);
    member.ended(now, "ended", &BACKOFF);
    assert!(matches!(member.phase, Phase::Stopped));
}

#[test]
fn silence_counts_as_a_failure() {
    let now = Instant::now();
    let mut member = member(now);
    member.started(running(now));
    member.signs = Signs { heartbeat: Some("1".to_owned()), ..Signs::default() };
    assert_eq!(member.status(), Status::Running);
    member.end(Why::Silent, now);
    member.ended(now, "was ended by signal 9", &BACKOFF);
    assert_eq!((due_in(&member, now), member.failures), (Some(Duration::from_secs(20)), 1));
    assert!(member.last_error.contains("heartbeat"));
    assert_eq!(member.status(), Status::BackingOff);
}
