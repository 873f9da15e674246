//! One cycle: fetch the market, score it, read the wallets, decide, check, carry out or propose, store, publish.
//!
//! Invariants: nothing is decided on half of the facts (a source or the client that fails, fails the cycle); nothing is carried out
//! that is not in the history first, as *unknown*; before each order the worker asks whether it may still act; a dry run hands in
//! nothing.

use std::time::Instant;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use uuid::Uuid;
use worker::history::HistoryError;
use worker::{Cycle, Turn};

use crate::book::Ages;
use crate::client::{Client, ClientError, Order};
use crate::publish::Publisher;
use crate::source::{SourceErrors, Sources};
use crate::store::{self, Entry, Outcome};
use crate::strategy::{Impossible, Strategy, StrategyError};

/// Why a cycle came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CycleError {
    #[error(transparent)]
    Sources(#[from] SourceErrors),
    #[error("the wallets could not be read")]
    Wallets(#[source] ClientError),
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error(transparent)]
    Impossible(#[from] Impossible),
    #[error("the scores are no JSON")]
    Scores(#[source] serde_json::Error),
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Some orders of the decision are not carried out; the history says which.
    #[error("the worker may no longer act: its lock or its time is gone")]
    Overtaken,
    #[error("order {key} came to nothing: {reason}")]
    Order { key: String, reason: String },
}

/// The stages around a strategy and a client.
#[derive(Debug)]
pub(crate) struct Stages<S, C> {
    pub(crate) sources: Sources,
    pub(crate) strategy: S,
    pub(crate) client: C,
    pub(crate) ages: Ages,
    pub(crate) publisher: Publisher,
    /// Proposes and carries out nothing.
    pub(crate) dry_run: bool,
}

impl<S: Strategy, C: Client> Cycle for Stages<S, C> {
    type Error = CycleError;

    async fn cycle(&mut self, turn: &Turn) -> Result<Value, CycleError> {
        let at = Utc::now();
        match self.stages(turn, at).await {
            Ok((own, report)) => {
                self.tell(turn, at, own, None).await;
                Ok(report)
            }
            Err(error) => {
                // What the last cycle decided is no longer what holds, so it does not stay published beside the error.
                let own = self.own(Value::Null, Value::Null, Value::Null);
                self.tell(turn, at, own, Some(&error)).await;
                Err(error)
            }
        }
    }
}

impl<S: Strategy, C: Client> Stages<S, C> {
    /// The stages; what to publish, and the report for the history.
    async fn stages(
        &mut self,
        turn: &Turn,
        at: DateTime<Utc>,
    ) -> Result<(Map<String, Value>, Value), CycleError> {
        let market = self.sources.fetch().await?;
        let scores = self.strategy.score(&market)?;
        let scores_json = serde_json::to_value(&scores).map_err(CycleError::Scores)?;
        // Last of what is fetched, because it changes fastest.
        let mut book = self.client.book().await.map_err(CycleError::Wallets)?;
        self.ages.mark(&mut book, Instant::now());
        let decision = self.strategy.decide(&scores, &book)?;
        decision.check(&book, self.strategy.kinds())?;

        let cycle = Uuid::now_v7();
        let worker = &turn.worker().settings().id;
        let outcome = if self.dry_run { Outcome::Proposed } else { Outcome::Unknown { error: None } };
        let entries = decision.moves.iter().enumerate();
        let entries = entries.map(|(n, a_move)| {
            let key = format!("{worker}/{cycle}/{n}");
            Entry { key, a_move: a_move.clone(), outcome: outcome.clone() }
        });
        let mut entries: Vec<Entry> = entries.collect();
        let (history, name) = (turn.worker().history(), self.strategy.name());
        let mut whole = store::decision_json(&entries, &decision, self.dry_run);
        if let Some(history) = history {
            store::market(history, at, &market, (name, scores_json.clone())).await?;
            store::decision(history, at, name, &whole, &entries).await?;
        }
        for entry in &entries {
            let a_move = &entry.a_move;
            tracing::info!(key = entry.key, kind = %a_move.kind, chain = %a_move.chain, asset = %a_move.asset,
                amount = a_move.amount_text(), dry_run = self.dry_run, reason = a_move.reason, "move decided");
        }
        if !self.dry_run {
            let carried_out = self.carry_out(turn, &mut entries).await;
            whole = store::decision_json(&entries, &decision, self.dry_run);
            if let Some(history) = history {
                store::decision(history, at, name, &whole, &entries).await?;
            }
            carried_out?;
        }
        let report = report(&entries, decision.holds.len(), self.dry_run);
        Ok((self.own(whole, scores_json, self.strategy.regime(&scores).into()), report))
    }

    /// Hands in one order after another. A refusal or an unknown outcome ends it: what comes next would rest on a move that may
    /// not happen.
    async fn carry_out(&self, turn: &Turn, entries: &mut [Entry]) -> Result<(), CycleError> {
        let mut result = Ok(());
        for entry in entries {
            if result.is_ok() && !turn.may_act() {
                result = Err(CycleError::Overtaken);
            }
            if result.is_err() {
                entry.outcome = Outcome::Unsent;
                continue;
            }
            let order = Order { key: &entry.key, fencing_token: turn.fencing_token(), a_move: &entry.a_move };
            match self.client.execute(order).await {
                Ok(reference) => entry.outcome = Outcome::Accepted { reference },
                Err(error) => {
                    let reason = rpc::error::chain(&error);
                    entry.outcome = match error {
                        ClientError::Refused(_) => Outcome::Refused { error: reason.clone() },
                        ClientError::Call { .. } | ClientError::Answer { .. } => {
                            Outcome::Unknown { error: Some(reason.clone()) }
                        }
                    };
                    result = Err(CycleError::Order { key: entry.key.clone(), reason });
                }
            }
        }
        result
    }

    /// The worker's own part of its published state.
    fn own(&self, decision: Value, scores: Value, regime: Value) -> Map<String, Value> {
        let fields = [
            ("strategy", self.strategy.name().into()),
            ("dryRun", self.dry_run.into()),
            ("decision", decision),
            ("scores", scores),
            ("regime", regime),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// State key and channel. One that was overtaken says nothing: the new owner speaks.
    async fn tell(
        &self,
        turn: &Turn,
        at: DateTime<Utc>,
        own: Map<String, Value>,
        error: Option<&CycleError>,
    ) {
        if !turn.worker().may_act() {
            return;
        }
        let mut message = own.clone();
        turn.worker().publish(own);
        let status = if error.is_some() { "failed" } else { "done" };
        for (name, value) in [
            ("pairId", Value::from(turn.worker().settings().id.as_str())),
            ("epoch", turn.epoch().into()),
            ("at", at.timestamp_millis().into()),
            ("status", status.into()),
            ("error", error.map(|error| rpc::error::chain(error)).into()),
        ] {
            message.insert(name.to_owned(), value);
        }
        self.publisher.publish(&Value::Object(message)).await;
    }
}

fn report(entries: &[Entry], holds: usize, dry_run: bool) -> Value {
    let mut counts = Map::new();
    for entry in entries {
        let count = counts.entry(entry.a_move.kind.to_string()).or_insert_with(|| 0.into());
        *count = (count.as_u64().unwrap_or(0) + 1).into();
    }
    let outcomes: Vec<&str> = entries.iter().map(|entry| entry.outcome.name()).collect();
    json!({ "dryRun": dry_run, "moves": counts, "outcomes": outcomes, "holds": holds })
}
