//! A strategy worker: at an interval it looks at the market and at the wallets, and says what should be moved where.
//!
//! Owns the stages of such a worker (candles, pools, scores, decision, carrying out, history, publication) and one strategy to begin
//! with: keep the float of each hot wallet between a floor and a ceiling. Both the strategy and the client are traits, to
//! be replaced by one's own; the README says how.
//!
//! Never: holds a key, signs or sends a transaction, invents a payment that the execution API does not offer, uses floating point
//! for a price or an amount, decides on half of the facts.
//!
//! What runs it (lock, heartbeat, control channel, interval, history file) is `libs/worker`.

pub mod book;
pub mod client;
pub mod config;
mod cycle;
pub mod decimal;
pub mod float;
pub mod market;
pub mod program;
mod publish;
pub mod source;
mod store;
pub mod strategy;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use worker::runtime::BoxError;
use worker::{Cycle, Ended, RuntimeError, Settings, Turn, runtime};

use crate::book::Ages;
use crate::client::Client;
pub use crate::cycle::CycleError;
use crate::cycle::Stages;
use crate::publish::Publisher;
use crate::source::Sources;
use crate::strategy::{Kind, Strategy};

/// What a strategy worker is made of.
#[derive(Debug)]
pub struct Parts<S, C> {
    pub sources: Sources,
    pub strategy: S,
    pub client: C,
    /// Balances that nobody has read for this long decide nothing.
    pub max_balance_age: Duration,
    /// Proposes and carries out nothing.
    pub dry_run: bool,
}

/// Why a worker did not start, or ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was told to do what its client cannot.
    #[error("dry_run {}", config::why_not_live(&.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))]
    NotOffered(Vec<Kind>),
    #[error(transparent)]
    Redis(#[from] worker::redis::RedisError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the cycle failed")]
    Cycle(#[source] CycleError),
    #[error("stopped before the first cycle was over")]
    NoCycle,
}

impl<S: Strategy, C: Client> Parts<S, C> {
    fn stages(self, settings: &Settings) -> Result<Stages<S, C>, RunError> {
        let offers = self.client.offers();
        let missing: Vec<Kind> =
            self.strategy.kinds().iter().copied().filter(|k| !offers.contains(k)).collect();
        if !self.dry_run && !missing.is_empty() {
            return Err(RunError::NotOffered(missing));
        }
        Ok(Stages {
            sources: self.sources,
            strategy: self.strategy,
            client: self.client,
            ages: Ages::new(self.max_balance_age),
            publisher: Publisher::new(settings)?,
            dry_run: self.dry_run,
        })
    }
}

/// Runs cycles until `stop` or a command on the control channel.
///
/// # Errors
/// When it cannot start or loses its lock. A failed cycle is none: it is told, and the next one comes.
pub async fn run<S: Strategy, C: Client>(
    parts: Parts<S, C>,
    settings: Settings,
    stop: CancellationToken,
) -> Result<Ended, RunError> {
    let stages = parts.stages(&settings)?;
    Ok(runtime::run(settings, stop, |worker| async move { worker.cycles(stages).await }).await?)
}

/// Runs one cycle and returns its report.
///
/// # Errors
/// When the worker cannot start, or the cycle fails.
pub async fn run_once<S: Strategy, C: Client>(
    parts: Parts<S, C>,
    settings: Settings,
    stop: CancellationToken,
) -> Result<Value, RunError> {
    let result = Arc::new(Mutex::new(None));
    let once = Once { stages: parts.stages(&settings)?, result: Arc::clone(&result) };
    runtime::run(settings, stop, |worker| async move { worker.cycles(once).await }).await?;
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    result.unwrap_or(Err(RunError::NoCycle))
}

/// Stops the worker after its first cycle and keeps what came of it.
struct Once<S, C> {
    stages: Stages<S, C>,
    result: Arc<Mutex<Option<Result<Value, RunError>>>>,
}

impl<S: Strategy, C: Client> Cycle for Once<S, C> {
    type Error = BoxError;

    async fn cycle(&mut self, turn: &Turn) -> Result<Value, BoxError> {
        let result = self.stages.cycle(turn).await.map_err(RunError::Cycle);
        turn.worker().stopping().cancel();
        let told = result.as_ref().map(Value::clone).map_err(|error| rpc::error::chain(error).into());
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        told
    }
}

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
