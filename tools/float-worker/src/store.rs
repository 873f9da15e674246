//! What a cycle leaves in the worker's SQLite file.
//!
//! | kind | name | time | body |
//! |---|---|---|---|
//! | `candle` | asset/source | open time | prices as texts |
//! | `pool` | asset/source | when it was seen | price, reserve, volume, trades |
//! | `scores` | strategy | the cycle's | the strategy's scores |
//! | `decision` | strategy | the cycle's | moves, holds, whether it ran dry |
//! | `move` | key of the order | the cycle's | the move and what became of it |
//!
//! All rows of a stage are one transaction.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use worker::History;
use worker::history::{HistoryError, Record};

use crate::market::Market;
use crate::strategy::{Decision, End, Move};

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Dry run: told to people, done by nobody.
    Proposed,
    /// About to be handed in, or handed in without an answer.
    Unknown {
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Accepted {
        reference: String,
    },
    Refused {
        error: String,
    },
    /// Not handed in, because one before it came to nothing or the worker may no longer act.
    Unsent,
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Unknown { .. } => "unknown",
            Self::Accepted { .. } => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unsent => "unsent",
        }
    }
}

/// A move with its key and outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) a_move: Move,
    pub(crate) outcome: Outcome,
}

impl Entry {
    /// As it is stored and published.
    pub(crate) fn json(&self) -> Value {
        let end = |end: End| match end {
            End::Wallet(id) => id.to_string(),
            End::Outside => "outside".to_owned(),
        };
        let a_move = &self.a_move;
        let mut view = json!({
            "key": self.key,
            "kind": a_move.kind,
            "chain": a_move.chain,
            "asset": a_move.asset,
            "from": end(a_move.from),
            "to": end(a_move.to),
            "amount": a_move.amount_text(),
            "amountRaw": a_move.amount,
            "value": a_move.value.map(|value| value.short(VALUE_PLACES)),
            "reason": a_move.reason,
        });
        // Both are objects: the outcome's fields lie beside the move's.
        if let (Value::Object(view), Ok(Value::Object(outcome))) =
            (&mut view, serde_json::to_value(&self.outcome))
        {
            view.extend(outcome);
        }
        view
    }
}

/// Values are for people.
const VALUE_PLACES: u8 = 8;

/// A decision as it is stored and published.
pub(crate) fn decision_json(entries: &[Entry], decision: &Decision, dry_run: bool) -> Value {
    json!({
        "dryRun": dry_run,
        "moves": entries.iter().map(Entry::json).collect::<Vec<_>>(),
        "holds": decision.holds,
    })
}

/// Keeps what was fetched and what was made of it.
pub(crate) async fn market(
    history: &History,
    at: DateTime<Utc>,
    market: &Market,
    scores: (&str, Value),
) -> Result<(), HistoryError> {
    let mut records = Vec::new();
    for series in &market.series {
        let name = format!("{}/{}", series.asset, series.source);
        for candle in &series.candles {
            let body = serde_json::to_value(candle)?;
            records.push(Record { kind: "candle", name: name.clone(), at: candle.open_time, body });
        }
    }
    for pool in &market.pools {
        let name = format!("{}/{}", pool.asset, pool.source);
        records.push(Record { kind: "pool", name, at: pool.seen_at, body: serde_json::to_value(pool)? });
    }
    let (strategy, body) = scores;
    records.push(Record { kind: "scores", name: strategy.to_owned(), at, body });
    history.put_all(&records).await
}

/// Keeps a decision and each of its moves as they stand now; again, when they stand otherwise.
pub(crate) async fn decision(
    history: &History,
    at: DateTime<Utc>,
    strategy: &str,
    whole: &Value,
    entries: &[Entry],
) -> Result<(), HistoryError> {
    let mut records = vec![Record { kind: "decision", name: strategy.to_owned(), at, body: whole.clone() }];
    records.extend(entries.iter().map(|entry| Record {
        kind: "move",
        name: entry.key.clone(),
        at,
        body: entry.json(),
    }));
    history.put_all(&records).await
}
