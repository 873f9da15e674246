//! Is this server fit to be called? Kept up to date by checks of what it depends on.
//!
//! Owns the statuses behind `grpc.health.v1` and `/readyz`: one per service, one per check, and `""` for all of it. A
//! service is SERVING while every critical check passed last time and the server is not draining. A check that has not
//! run yet, does not answer in time or panics has failed. It never restarts anything: recovery is the next check passing.
//!
//! A group of checks has members that come and go while the server runs; each is reported as `group/member` while it is a
//! member. When the list of members cannot be read, the known ones stay and go on being checked.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tokio::sync::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::check::{Check, CheckGroup};

/// How often histogram samples are folded, see `telemetry::metrics::Metrics::upkeep`.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How dependencies are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthConfig {
    /// Pause between two runs of a check.
    pub interval_ms: u64,
    /// A check that takes longer has failed.
    pub timeout_ms: u64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { interval_ms: 1000, timeout_ms: 2000 }
    }
}

/// The state of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Whether it passed last time.
    pub ok: bool,
    /// Whether the server counts on it.
    pub critical: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `ok`, `failing` or `draining`.
    pub status: &'static str,
    pub checks: BTreeMap<String, CheckReport>,
}

impl Report {
    /// Whether calls are welcome.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.status == "ok"
    }
}

struct State {
    checks: BTreeMap<String, CheckReport>,
    draining: bool,
    /// What was last published, so that watchers hear of changes only.
    published: HashMap<String, ServingStatus>,
}

/// A handle on the statuses.
#[derive(Clone)]
pub struct Health {
    /// Locked while statuses are published: two checks that finish together must not overwrite each other's result.
    state: Arc<Mutex<State>>,
    reporter: HealthReporter,
    services: Arc<[&'static str]>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("services", &self.services).finish_non_exhaustive()
    }
}

impl Health {
    pub(super) fn new(
        services: &Arc<[&'static str]>,
        checks: &[Check],
    ) -> (Self, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
        let checks = checks.iter().map(|check| (check.name.clone(), unchecked(check))).collect();
        let state = State { checks, draining: false, published: HashMap::new() };
        (Self { state: Arc::new(Mutex::new(state)), reporter, services: Arc::clone(services) }, service)
    }

    pub async fn report(&self) -> Report {
        let state = self.state.lock().await;
        Report { status: state.status(), checks: state.checks.clone() }
    }

    /// NOT_SERVING from now on, whatever the checks say.
    pub(super) async fn drain(&self) {
        let mut state = self.state.lock().await;
        state.draining = true;
        self.publish_changes(&mut state).await;
    }

    /// Publishes the statuses as they are when the server starts.
    pub(super) async fn publish(&self) {
        self.publish_changes(&mut *self.state.lock().await).await;
    }

    /// Adds the new members of a group and removes those that have left it.
    async fn set_members(&self, group: &CheckGroup, members: &[Check]) {
        let mut state = self.state.lock().await;
        let prefix = format!("{}/", group.name);
        let is_member = |name: &String| members.iter().any(|member| member.name == *name);
        let gone: Vec<String> = state
            .checks
            .keys()
            .filter(|name| name.starts_with(&prefix) && !is_member(name))
            .cloned()
            .collect();
        for name in gone {
            tracing::info!(check = name, "no longer checked");
            state.checks.remove(&name);
            state.published.remove(&name);
            // A gauge cannot be taken back; this value is neither passing nor failing.
            metrics::gauge!("bursar_health_check", "check" => name.clone()).set(f64::NAN);
            self.reporter.clone().clear_service_status(&name).await;
        }
        for member in members {
            state.checks.entry(member.name.clone()).or_insert_with(|| unchecked(member));
        }
        self.publish_changes(&mut state).await;
    }

    async fn record(&self, name: &str, outcome: Result<(), String>) {
        let mut state = self.state.lock().await;
        let Some(check) = state.checks.get_mut(name) else { return };
        match (&outcome, check.ok) {
            (Ok(()), false) => tracing::info!(check = name, "check passes"),
            (Err(error), true) => tracing::warn!(check = name, error, "check fails"),
            // Logged when it begins to fail, and again when the reason changes.
            (Err(error), false) if check.error.as_ref() != Some(error) => {
                tracing::warn!(check = name, error, "check fails");
            }
            _ => {}
        }
        metrics::gauge!("bursar_health_check", "check" => name.to_owned()).set(if outcome.is_ok() {
            1.0
        } else {
            0.0
        });
        check.ok = outcome.is_ok();
        check.error = outcome.err();
        self.publish_changes(&mut state).await;
    }

    async fn publish_changes(&self, state: &mut State) {
        let overall = serving(state.status() == "ok");
        let mut now: Vec<(&str, ServingStatus)> = vec![("", overall)];
        now.extend(self.services.iter().map(|service| (*service, overall)));
        now.extend(
            state.checks.iter().map(|(name, check)| (name.as_str(), serving(check.ok && !state.draining))),
        );
        let changed: Vec<(String, ServingStatus)> = now
            .into_iter()
            .filter(|(name, status)| state.published.get(*name) != Some(status))
            .map(|(name, status)| (name.to_owned(), status))
            .collect();
        for (name, status) in changed {
            self.reporter.set_service_status(&name, status).await;
            state.published.insert(name, status);
        }
    }
}

impl State {
    fn status(&self) -> &'static str {
        if self.draining {
            "draining"
        } else if self.checks.values().all(|check| check.ok || !check.critical) {
            "ok"
        } else {
            "failing"
        }
    }
}

fn unchecked(check: &Check) -> CheckReport {
    CheckReport { ok: false, critical: check.critical, error: Some("not checked yet".to_owned()) }
}

fn serving(yes: bool) -> ServingStatus {
    if yes { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// Starts the check loops; they end when the server drains.
pub(super) fn spawn(
    health: &Health,
    (checks, groups): (Vec<Check>, Vec<CheckGroup>),
    config: HealthConfig,
    draining: CancellationToken,
) -> TaskTracker {
    let tracker = TaskTracker::new();
    for group in groups {
        let (health, draining) = (health.clone(), draining.clone());
        tracker.spawn(async move {
            draining.run_until_cancelled(watch_group(&health, &group, config)).await;
        });
    }
    for check in checks {
        let (health, draining) = (health.clone(), draining.clone());
        tracker.spawn(async move {
            let watch = async {
                loop {
                    let outcome = check.run(Duration::from_millis(config.timeout_ms)).await;
                    health.record(&check.name, outcome).await;
                    tokio::time::sleep(Duration::from_millis(config.interval_ms)).await;
                }
            };
            draining.run_until_cancelled(watch).await;
        });
    }
    tracker.spawn(async move {
        let upkeep = async {
            loop {
                telemetry::metrics::install().upkeep();
                tokio::time::sleep(UPKEEP_EVERY).await;
            }
        };
        draining.run_until_cancelled(upkeep).await;
    });
    tracker.close();
    tracker
}

/// Reads the members, then checks all of them at the same time, so that one that hangs does not delay the others.
async fn watch_group(health: &Health, group: &CheckGroup, config: HealthConfig) {
    let limit = Duration::from_millis(config.timeout_ms);
    let mut members: Vec<Check> = Vec::new();
    let mut last_error = None;
    loop {
        match group.read_members(limit).await {
            Ok(found) => {
                last_error = None;
                members = found;
                health.set_members(group, &members).await;
            }
            // Logged once, and again when the reason changes: a lost database would otherwise fill the log.
            Err(error) if last_error.as_ref() != Some(&error) => {
                tracing::warn!(
                    family = group.name,
                    error,
                    "cannot read what is to be checked; going on with what is known"
                );
                last_error = Some(error);
            }
            Err(_) => {}
        }
        futures::future::join_all(members.iter().map(|member| async move {
            health.record(&member.name, member.run(limit).await).await;
        }))
        .await;
        tokio::time::sleep(Duration::from_millis(config.interval_ms)).await;
    }
}
