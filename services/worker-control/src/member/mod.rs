//! One worker as the orchestrator knows it: its specification, its phase, what comes next. No I/O; time is an argument.
//!
//! ```text
//!            due             exits, or is ended for a missing heartbeat
//! Stopped ─▶ Due ─▶ Up ──────────────────────────────────────▶ Due (backoff) ─▶ .. ─▶ GivenUp
//!    ▲               │ stop, restart, changed                      ▲                     │
//!    └── Ending ◀────┘ ───────────────────────────────────────────┘ ◀── start, restart ─┘
//! ```
//!
//! Invariant: a worker has at most one process. A new one starts only in `Due`, and a phase with a process becomes `Due` only
//! after that process has ended.

#[cfg(test)]
mod tests;

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use types::Backoff;

use crate::fleet::view::{Status, WorkerView};
use crate::process::Identity;
use crate::registry::Liveness;
use crate::spec::{Source, Spec};

/// Dead incarnations remembered; there is more than one only when Redis was away while several ended.
const DEAD_REMEMBERED: usize = 32;

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
pub(crate) enum EndReason {
    /// It should not run.
    Stop,
    /// It should run again: a restart was requested, or its specification changed.
    Restart,
    /// Its heartbeat was missing for too long.
    Silent,
}

/// An incarnation on another machine, whose processes this orchestrator cannot see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteIncarnation {
    pub(crate) incarnation: String,
    /// It ran on this machine before a reboot: it is dead, unless it still has a heartbeat.
    pub(crate) earlier_boot: bool,
}

#[derive(Debug)]
pub(crate) enum Phase {
    Stopped,
    Due { at: Instant },
    Up { process: Running },
    Ending { process: Running, reason: EndReason, kill_at: Instant },
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) spec: Arc<Spec>,
    /// Of the specification; a process with another fingerprint runs an outdated one.
    pub(crate) fingerprint: String,
    pub(crate) source: Source,
    /// Whether operators want it to run, whatever its specification says.
    pub(crate) wanted: Option<bool>,
    /// It is no longer configured, and disappears once its process has ended and Redis has no trace of it.
    pub(crate) removed: bool,
    pub(crate) phase: Phase,
    pub(crate) starts: u64,
    pub(crate) failures: u32,
    pub(crate) last_error: String,
    pub(crate) liveness: Liveness,
    /// Incarnations whose lock may be freed.
    pub(crate) dead: Vec<String>,
    /// An incarnation that may still run on another machine; none once this orchestrator was allowed to start its own.
    pub(crate) remote: Option<RemoteIncarnation>,
    /// Redis may list it as active, or hold a record of it.
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
            liveness: Liveness::default(),
            dead: Vec::new(),
            remote: None,
            // A predecessor may have left a record.
            listed: true,
        };
        member.reconcile(now);
        member
    }

    pub(crate) fn set_spec(&mut self, spec: Spec) {
        self.fingerprint = spec.fingerprint();
        self.spec = Arc::new(spec);
    }

    /// Whether nothing of it is left: it is not configured, has no process anywhere, and Redis has no trace of it.
    pub(crate) fn is_gone(&self) -> bool {
        let runs_nowhere = self.process().is_none() && self.remote.is_none();
        self.removed && runs_nowhere && self.dead.is_empty() && !self.listed
    }

    pub(crate) fn mark_dead(&mut self, incarnation: String) {
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
    pub(crate) fn reconcile(&mut self, now: Instant) -> bool {
        match (&self.phase, self.runs()) {
            (Phase::Stopped, true) => (self.phase, self.listed) = (Phase::Due { at: now }, true),
            (Phase::Due { .. } | Phase::GivenUp, false) => self.phase = Phase::Stopped,
            (Phase::Up { .. }, false) => return true,
            (Phase::Ending { reason: EndReason::Restart | EndReason::Silent, .. }, false) => {
                self.set_end_reason(EndReason::Stop);
            }
            // It was stopped and then started before its process had ended.
            (Phase::Ending { reason: EndReason::Stop, .. }, true) => self.set_end_reason(EndReason::Restart),
            (Phase::Stopped, false)
            | (Phase::Due { .. } | Phase::GivenUp | Phase::Up { .. }, true)
            | (Phase::Ending { reason: EndReason::Stop, .. }, false)
            | (Phase::Ending { reason: EndReason::Restart | EndReason::Silent, .. }, true) => {}
        }
        false
    }

    fn set_end_reason(&mut self, new: EndReason) {
        if let Phase::Ending { reason, .. } = &mut self.phase {
            *reason = new;
        }
    }

    /// Lets it start without backoff, with its failures forgotten.
    pub(crate) fn start_now(&mut self, now: Instant) {
        self.failures = 0;
        if matches!(self.phase, Phase::Due { .. } | Phase::GivenUp) && self.runs() {
            self.phase = Phase::Due { at: now };
        }
    }

    pub(crate) fn started(&mut self, process: Running) {
        self.starts += 1;
        self.liveness = Liveness::default();
        self.phase = Phase::Up { process };
    }

    /// Marks its process as ending. Returns the process if it has not been asked to end before.
    pub(crate) fn end(&mut self, reason: EndReason, kill_at: Instant) -> Option<Identity> {
        match std::mem::replace(&mut self.phase, Phase::Stopped) {
            Phase::Up { process } => {
                let identity = process.identity;
                self.phase = Phase::Ending { process, reason, kill_at };
                Some(identity)
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Its process has ended; decides what comes next. Returns the incarnation that is dead now.
    pub(crate) fn ended(&mut self, now: Instant, how: &str, backoff: &Backoff) -> Option<String> {
        let (process, reason) = match std::mem::replace(&mut self.phase, Phase::Stopped) {
            Phase::Up { process } => (process, None),
            Phase::Ending { process, reason, .. } => (process, Some(reason)),
            other => {
                self.phase = other;
                return None;
            }
        };
        self.mark_dead(process.incarnation.clone());
        self.liveness = Liveness { restarting: self.liveness.restarting, ..Liveness::default() };
        match reason {
            Some(EndReason::Stop) => {}
            Some(EndReason::Restart) => self.phase = Phase::Due { at: now },
            Some(EndReason::Silent) => {
                self.failed(now, "was ended because its heartbeat was missing", backoff)
            }
            None => self.failed(now, how, backoff),
        }
        self.reconcile(now);
        Some(process.incarnation)
    }

    /// A start failed, or a process ended that should have gone on.
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
            Phase::Up { .. } if self.liveness.heartbeat.is_some() => Status::Running,
            Phase::Up { process } if process.child.is_none() || self.was_heard() => Status::Silent,
            Phase::Up { .. } => Status::Starting,
            Phase::Ending { .. } => Status::Stopping,
            Phase::GivenUp => Status::GivenUp,
        }
    }

    /// The state outlives the heartbeat, so it shows whether there ever was one.
    fn was_heard(&self) -> bool {
        self.liveness.state.is_some()
    }

    pub(crate) fn view(&self, now: Instant, wall: DateTime<Utc>) -> WorkerView {
        let next_start_at = match &self.phase {
            Phase::Due { at } => {
                let wait = chrono::Duration::from_std(at.saturating_duration_since(now)).unwrap_or_default();
                Some(wall + wait)
            }
            _ => None,
        };
        let heartbeat = self.liveness.heartbeat.as_ref().and_then(|text| text.parse().ok());
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
            state: self.liveness.state.clone().unwrap_or_default(),
            last_error: self.last_error.clone(),
        }
    }
}
