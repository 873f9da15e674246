//! The settings of a worker, read from the environment that the orchestrator (or a Kubernetes manifest) sets.
//!
//! | variable | default | |
//! |---|---|---|
//! | `WORKER_PAIR_ID` | the program's own name for itself | id of the worker |
//! | `INTERVAL_SEC` | 900 | cycle interval |
//! | `CYCLE_DEADLINE_SEC` | the lock's time to live | longest cycle |
//! | `WORKER_REDIS_URL` | none: the worker runs alone | where the keys are |
//! | `WORKER_REDIS_TIMEOUT_MS` | 2000 | longest wait for an answer |
//! | `WORKER_NAMESPACE` | `btr:` | prefix of the keys |
//! | `WORKER_INCARNATION` | a new one | unique for each start; set by an orchestrator |
//! | `WORKER_ORPHAN` | `stay` | `exit`: stop when standard input ends, because the orchestrator is gone |
//! | `WORKER_DATA_DIR` | `.data` | where the history file lies |
//! | `WORKER_HEARTBEAT_INTERVAL_MS`, `WORKER_HEARTBEAT_TTL_MS`, `WORKER_LOCK_TTL_MS`, `WORKER_STATE_TTL_MS`, `WORKER_RESTARTING_TTL_MS` | 15 s, 45 s, 900 s, 60 s, 60 s | intervals and times to live |

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::WorkerId;
use crate::history::RETENTION;
use crate::keys::{DEFAULT_NAMESPACE, Keys, Timing};
use crate::redis::RedisConfig;

/// No duration is longer, because adding it to a clock must not leave the clock's range.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a worker does when Redis does not answer. It finishes running work in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithoutRedis {
    /// Starts nothing new, because only its lock keeps others from doing the same work.
    #[default]
    Pause,
    /// Continues, because each piece of its work is leased and fenced by a database, so that a second worker does no harm.
    GoOn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub id: WorkerId,
    /// Unique for each start of the process.
    pub incarnation: String,
    /// Whether an orchestrator started this worker. Then the worker does not wait for a lock that another one holds.
    pub supervised: bool,
    /// Without it the worker runs alone.
    pub redis: Option<RedisConfig>,
    pub keys: Keys,
    pub timing: Timing,
    pub interval: Duration,
    /// A longer cycle is cancelled.
    pub deadline: Duration,
    /// The directory of the history; without it no history is kept.
    pub data_dir: Option<PathBuf>,
    pub retention: Duration,
    pub without_redis: WithoutRedis,
    /// Whether the worker ends with its standard input, which means that the orchestrator is gone.
    pub exit_when_orphaned: bool,
}

/// Every variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SettingsError(pub Vec<String>);

impl Settings {
    /// A worker that runs alone, with the default timing.
    pub fn alone(id: WorkerId) -> Self {
        let timing = Timing::default();
        Self {
            id,
            incarnation: Uuid::now_v7().to_string(),
            supervised: false,
            redis: None,
            keys: Keys::new(DEFAULT_NAMESPACE),
            timing,
            interval: Duration::from_secs(900),
            deadline: timing.lock_ttl,
            data_dir: None,
            retention: RETENTION,
            without_redis: WithoutRedis::Pause,
            exit_when_orphaned: false,
        }
    }

    /// From the process's environment; `id` is the worker's id when the environment names none.
    pub fn from_env(id: &WorkerId) -> Result<Self, SettingsError> {
        // Variables that are not Unicode cannot be ours.
        let variables =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::from_variables(id, variables)
    }

    /// The same from given variables.
    pub fn from_variables(
        id: &WorkerId,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut read = VariableReader { values: variables.into_iter().collect(), mistakes: Vec::new() };
        let id = read.parsed("WORKER_PAIR_ID").unwrap_or_else(|| id.clone());
        let default = Timing::default();
        let [heartbeat, heartbeat_ttl, lock, state, restarting] =
            default.named().map(|(name, span)| read.millis(name).unwrap_or(span));
        let timing = Timing {
            heartbeat_interval: heartbeat,
            heartbeat_ttl,
            lock_ttl: lock,
            state_ttl: state,
            restarting_ttl: restarting,
        };
        let incarnation = read.text("WORKER_INCARNATION");
        let timeout = read.millis("WORKER_REDIS_TIMEOUT_MS").unwrap_or(Duration::from_secs(2));
        let alone = Self::alone(id);
        let settings = Self {
            supervised: incarnation.is_some(),
            incarnation: incarnation.unwrap_or_else(|| alone.incarnation.clone()),
            redis: read.text("WORKER_REDIS_URL").map(|url| RedisConfig { url, timeout }),
            keys: Keys::new(read.text("WORKER_NAMESPACE").unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
            timing,
            interval: read.seconds("INTERVAL_SEC").unwrap_or(alone.interval),
            deadline: read.seconds("CYCLE_DEADLINE_SEC").unwrap_or(timing.lock_ttl),
            data_dir: Some(read.text("WORKER_DATA_DIR").unwrap_or_else(|| ".data".to_owned()).into()),
            exit_when_orphaned: read.orphan(),
            ..alone
        };
        if read.mistakes.is_empty() { Ok(settings) } else { Err(SettingsError(read.mistakes)) }
    }
}

struct VariableReader {
    values: BTreeMap<String, String>,
    mistakes: Vec<String>,
}

impl VariableReader {
    fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn parsed<T: std::str::FromStr>(&mut self, name: &str) -> Option<T>
    where
        T::Err: std::fmt::Display,
    {
        let text = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.mistakes.push(format!("{name}: `{text}` cannot be used: {error}"));
                None
            }
        }
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        let span = Duration::from_millis(self.parsed(name)?);
        self.bounded(name, Some(span))
    }

    fn seconds(&mut self, name: &str) -> Option<Duration> {
        let seconds: f64 = self.parsed(name)?;
        self.bounded(name, Duration::try_from_secs_f64(seconds).ok())
    }

    fn bounded(&mut self, name: &str, span: Option<Duration>) -> Option<Duration> {
        let good = span.filter(|span| (Duration::from_millis(1)..=LONGEST).contains(span));
        if good.is_none() {
            self.mistakes.push(format!("{name}: must be between 1 millisecond and 366 days"));
        }
        good
    }

    fn orphan(&mut self) -> bool {
        match self.text("WORKER_ORPHAN").as_deref() {
            None | Some("stay") => false,
            Some("exit") => true,
            Some(other) => {
                self.mistakes.push(format!("WORKER_ORPHAN: `{other}` is neither `stay` nor `exit`"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::from_variables(&"own-name".parse().unwrap(), variables)
    }

    #[test]
    fn nothing_set_is_a_worker_that_runs_alone_every_quarter_of_an_hour() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.id.as_str(), "own-name");
        assert_eq!((settings.redis.is_none(), settings.supervised), (true, false));
        assert_eq!(settings.interval, Duration::from_secs(900));
        assert_eq!(settings.timing, Timing::default());
    }

    #[test]
    fn an_orchestrators_environment_is_understood() {
        let timing = Timing { heartbeat_interval: Duration::from_millis(50), ..Timing::default() };
        let mut variables =
            vec![("WORKER_PAIR_ID", "a"), ("WORKER_INCARNATION", "i-1"), ("INTERVAL_SEC", "0.25")];
        variables.extend([("WORKER_REDIS_URL", "redis://127.0.0.1:1"), ("WORKER_NAMESPACE", "x:")]);
        let given = timing.variables();
        variables.extend(given.iter().map(|(name, value)| (*name, value.as_str())));
        let settings = read(&variables).unwrap();
        assert_eq!((settings.id.as_str(), settings.incarnation.as_str()), ("a", "i-1"));
        assert_eq!(settings.interval, Duration::from_millis(250));
        assert_eq!(settings.timing, timing);
        assert_eq!(settings.keys.control(), "x:control");
        assert!(settings.supervised && settings.redis.is_some());
    }

    #[test]
    fn every_mistake_is_named() {
        let error = read(&[("INTERVAL_SEC", "-1"), ("WORKER_PAIR_ID", "a b"), ("WORKER_LOCK_TTL_MS", "0")]);
        let SettingsError(mistakes) = error.unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    }

    #[test]
    fn a_span_that_no_clock_can_count_is_refused() {
        let huge = [
            ("INTERVAL_SEC", "1e19"),
            ("CYCLE_DEADLINE_SEC", "1e300"),
            ("WORKER_LOCK_TTL_MS", "18446744073709551615"),
        ];
        for (name, value) in huge {
            let SettingsError(mistakes) = read(&[(name, value)]).unwrap_err();
            assert_eq!(mistakes, [format!("{name}: must be between 1 millisecond and 366 days")]);
        }
        let year = read(&[("INTERVAL_SEC", "31622400")]).unwrap();
        assert_eq!(year.interval, LONGEST);
    }
}
