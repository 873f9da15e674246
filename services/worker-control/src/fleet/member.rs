//! One worker as the orchestrator knows it: what it runs, where it stands, what comes next. No I/O; time is an argument.
//!
//! ```text
//!            due             exits, or is ended for its silence
//! Stopped ─▶ Due ─▶ Up ──────────────────────────────────────▶ Due (backoff) ─▶ .. ─▶ GivenUp
//!    ▲               │ told to stop, restart, changed              ▲                     │
//!    └── Ending ◀────┘ ───────────────────────────────────────────┘ ◀── start, restart ─┘
//! ```
//!
//! Invariant: at most one process at a time; a new one begins only in `Due`, which no state with a process in it turns into
//! before that process has ended.

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use types::Backoff;

use super::process::Identity;
use super::registry::Signs;
use super::spec::{Source, Spec};
use super::view::{Status, WorkerView};

/// Incarnations remembered as dead; more than one only when Redis was away for several ends.
const DEAD_REMEMBERED: usize = 32;

/// A process of a worker.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) identity: Identity,
    pub(crate) incarnation: String,
    pub(crate) fingerprint: String,
    /// Absent for a process that a predecessor started.
    pub(crate) child: Option<Child>,
    pub(crate) since: Instant,
}

/// Why a process is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It should not run.
    Stop,
    /// It should run anew: asked for, or its specification changed.
    Renew,
    /// It was not heard of for too long.
    Silent,
}

/// An incarnation that was admitted where we cannot look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) incarnation: String,
    /// On this machine before it started anew: dead, unless its heart beats.
    pub(crate) earlier_boot: bool,
}

#[derive(Debug)]
pub(crate) enum Phase {
    Stopped,
    Due { at: Instant },
    Up { process: Running },
    Ending { process: Running, why: Why, kill_at: Instant },
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) spec: Arc<Spec>,
    /// Of the specification; a process with another one runs what is no longer configured.
    pub(crate) fingerprint: String,
    pub(crate) source: Source,
    /// Whether operators want it to run, whatever the specification says.
    pub(crate) wanted: Option<bool>,
    /// No longer configured; gone once its process is, and Redis knows.
    pub(crate) removed: bool,
    pub(crate) phase: Phase,
    pub(crate) starts: u64,
    pub(crate) failures: u32,
    pub(crate) last_error: String,
    pub(crate) signs: Signs,
    /// Incarnations whose lock may be freed.
    pub(crate) dead: Vec<String>,
    /// Whoever may still run where we cannot look; nobody once we were allowed to start it ourselves.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// Redis may count it among the active ones, or hold a record of it.
    pub(crate) listed: bool,
}

impl Member {
    pub(crate) fn new(spec: Spec, source: Source, wanted: Option<bool>, now: Instant) -> Self {
        let mut member = Self {
            fingerprint: spec.fingerprint(),
            spec: Arc::new(spec),
            source,
            wanted,
            removed: false,
            phase: Phase::Stopped,
            starts: 0,
            failures: 0,
            last_error: String::new(),
            signs: Signs::default(),
            dead: Vec::new(),
            elsewhere: None,
            // A predecessor may have left something.
            listed: true,
        };
        member.settle(now);
        member
    }

    /// From now on it is to run this.
    pub(crate) fn follow(&mut self, spec: Spec) {
        self.fingerprint = spec.fingerprint();
        self.spec = Arc::new(spec);
    }

    /// Whether nothing of it is left: not configured, no process anywhere, and Redis has forgotten it.
    pub(crate) fn is_gone(&self) -> bool {
        let runs_nowhere = self.process().is_none() && self.elsewhere.is_none();
        self.removed && runs_nowhere && self.dead.is_empty() && !self.listed
    }

    /// An incarnation whose lock may be freed.
    pub(crate) fn bury(&mut self, incarnation: String) {
        if self.dead.contains(&incarnation) {
            return;
        }
        self.dead.push(incarnation);
        if self.dead.len() > DEAD_REMEMBERED {
            self.dead.remove(0);
        }
    }

    /// Whether it should run.
    pub(crate) fn runs(&self) -> bool {
        !self.removed && self.wanted.unwrap_or(self.spec.enabled)
    }

    pub(crate) fn process(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Up { process } | Phase::Ending { process, .. } => Some(process),
            Phase::Stopped | Phase::Due { .. } | Phase::GivenUp => None,
        }
    }

    pub(crate) fn process_mut(&mut self) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Up { process } | Phase::Ending { process, .. } => Some(process),
            Phase::Stopped | Phase::Due { .. } | Phase::GivenUp => None,
        }
    }

    /// Brings the phase in line with whether it should run. True when its process has to be ended now.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        match (&self.phase, self.runs()) {
            (Phase::Stopped, true) => (self.phase, self.listed) = (Phase::Due { at: now }, true),
            (Phase::Due { .. } | Phase::GivenUp, false) => self.phase = Phase::Stopped,
            (Phase::Up { .. }, false) => return true,
            (Phase::Ending { why: Why::Renew | Why::Silent, .. }, false) => {
                if let Phase::Ending { why, .. } = &mut self.phase {
                    *why = Why::Stop;
                }
            }
            // It was to stop, and shall run after all.
            (Phase::Ending { why: Why::Stop, .. }, true) => {
                if let Phase::Ending { why, .. } = &mut self.phase {
                    *why = Why::Renew;
                }
            }
            (Phase::Stopped, false)
            | (Phase::Due { .. } | Phase::GivenUp | Phase::Up { .. }, true)
            | (Phase::Ending { why: Why::Stop, .. }, false)
            | (Phase::Ending { why: Why::Renew | Why::Silent, .. }, true) => {}
        }
        false
    }

    /// Lets it start without backoff, with a clean record.
    pub(crate) fn revive(&mut self, now: Instant) {
        self.failures = 0;
        if matches!(self.phase, Phase::Due { .. } | Phase::GivenUp) && self.runs() {
            self.phase = Phase::Due { at: now };
        }
    }

    /// A process was started.
    pub(crate) fn started(&mut self, process: Running) {
        self.starts += 1;
        self.signs = Signs::default();
        self.phase = Phase::Up { process };
    }

    /// Its process is to end. Returns it when there is one that has not been told yet.
    pub(crate) fn end(&mut self, why: Why, kill_at: Instant) -> Option<Identity> {
        match std::mem::replace(&mut self.phase, Phase::Stopped) {
            Phase::Up { process } => {
                let identity = process.identity;
                self.phase = Phase::Ending { process, why, kill_at };
                Some(identity)
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Its process has ended: what comes next. Returns the incarnation that is dead now.
    pub(crate) fn ended(&mut self, now: Instant, how: &str, backoff: &Backoff) -> Option<String> {
        let (process, why) = match std::mem::replace(&mut self.phase, Phase::Stopped) {
            Phase::Up { process } => (process, None),
            Phase::Ending { process, why, .. } => (process, Some(why)),
            other => {
                self.phase = other;
                return None;
            }
        };
        self.bury(process.incarnation.clone());
        self.signs = Signs { restarting: self.signs.restarting, ..Signs::default() };
        match why {
            Some(Why::Stop) => {}
            Some(Why::Renew) => self.phase = Phase::Due { at: now },
            Some(Why::Silent) => self.failed(now, "was ended because its heartbeat was missing", backoff),
            None => self.failed(now, how, backoff),
        }
        self.settle(now);
        Some(process.incarnation)
    }

    /// A start failed, or a process ended that should run.
    pub(crate) fn failed(&mut self, now: Instant, how: &str, backoff: &Backoff) {
        self.failures = self.failures.saturating_add(1);
        self.last_error = how.to_owned();
        self.phase = if backoff.exhausted(self.failures) {
            Phase::GivenUp
        } else {
            Phase::Due { at: now + backoff.delay(self.failures - 1) }
        };
    }

    /// How long its process has been up.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.process().map_or(Duration::ZERO, |process| now.saturating_duration_since(process.since))
    }

    pub(crate) fn status(&self) -> Status {
        match &self.phase {
            Phase::Stopped => Status::Stopped,
            Phase::Due { .. } if self.failures == 0 => Status::Starting,
            Phase::Due { .. } => Status::BackingOff,
            Phase::Up { .. } if self.signs.heartbeat.is_some() => Status::Running,
            Phase::Up { process } if process.child.is_none() || self.was_heard() => Status::Silent,
            Phase::Up { .. } => Status::Starting,
            Phase::Ending { .. } => Status::Stopping,
            Phase::GivenUp => Status::GivenUp,
        }
    }

    /// The state outlives the heartbeat, so it tells whether there ever was one.
    fn was_heard(&self) -> bool {
        self.signs.state.is_some()
    }

    /// For the outside.
    pub(crate) fn view(&self, now: Instant, wall: DateTime<Utc>) -> WorkerView {
        let next_start_at = match &self.phase {
            Phase::Due { at } => {
                let wait = chrono::Duration::from_std(at.saturating_duration_since(now)).unwrap_or_default();
                Some(wall + wait)
            }
            _ => None,
        };
        let heartbeat = self.signs.heartbeat.as_ref().and_then(|text| text.parse().ok());
        WorkerView {
            spec: Arc::clone(&self.spec),
            wanted: self.runs(),
            status: self.status(),
            pid: self.process().map_or(0, |process| process.identity.pid),
            incarnation: self.process().map(|process| process.incarnation.clone()).unwrap_or_default(),
            starts: self.starts,
            failures: self.failures,
            heartbeat_at: heartbeat.and_then(DateTime::from_timestamp_millis),
            next_start_at,
            state: self.signs.state.clone().unwrap_or_default(),
            last_error: self.last_error.clone(),
        }
    }
}
