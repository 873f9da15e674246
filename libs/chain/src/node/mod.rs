//! The nodes of one chain: their identity and health, and how questions are distributed over them.
//!
//! ```text
//! set         all nodes of a chain: failover, questions to all, agreement
//! send        signed bytes to every node at once
//! agreement   what several nodes say about one fact; disagreement is a value
//! http        HTTP to one node, with a deadline
//! jsonrpc     JSON-RPC over HTTP, single and batched
//! text        texts of nodes, made fit for tables and logs
//! ```
//!
//! A node is asked which chain it belongs to before anything else, and again after each failure. The client is a type
//! parameter, so that every family of chain treats its nodes alike.
//!
//! Invariants: a node of another chain is never asked anything but its identity; the head of a node never goes back in number;
//! and a failing node delays answers for a bounded time only, after which it is paused.

pub mod agreement;
pub mod http;
pub mod jsonrpc;
pub mod set;

mod send;
pub(crate) mod text;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::ChainName;

pub use set::NodeSet;

use crate::error::NodeError;
use crate::heads::Head;

/// The operator's name for a node; safe to log, unlike its address.
pub type NodeName = Arc<str>;

/// Failures in a row after which a node is paused.
const FAILURES_BEFORE_REST: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How often a node of another chain is checked again; somebody has to correct its address first.
const WRONG_CHAIN_REST: Duration = Duration::from_secs(30);
/// How long a node must report lower heads until a higher one that it reported before is forgotten.
const BELIEVED_AFTER: Duration = Duration::from_secs(60);

/// How to reach one node.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    pub name: String,
    pub url: String,
}

// The address carries the API key of a hosted node.
impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the client of every family of chain can do.
pub trait NodeClient: fmt::Debug + Send + Sync + 'static {
    /// Fails with [`NodeError::WrongChain`] when the node belongs to another chain.
    fn verify(&self) -> impl Future<Output = Result<(), NodeError>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    Unchecked,
    Verified,
    Wrong { found: String },
}

#[derive(Debug)]
struct State {
    identity: Identity,
    failures: u32,
    rest_until: Option<Instant>,
    last_error: Option<NodeError>,
    known: KnownHead,
}

/// The highest head of a node that is believed.
#[derive(Debug, Default)]
struct KnownHead {
    head: Option<Head>,
    /// Since when the node has reported only lower heads.
    back_since: Option<Instant>,
}

impl KnownHead {
    /// Records a reported head and returns the one to believe.
    fn observe(&mut self, head: Head, now: Instant) -> Head {
        let higher = self.head.filter(|known| known.number > head.number);
        let (believed, back_since) = match (higher, self.back_since) {
            (None, _) => (head, None),
            (Some(_), Some(since)) if now.duration_since(since) >= BELIEVED_AFTER => (head, None),
            (Some(higher), since) => (higher, since.or(Some(now))),
        };
        *self = Self { head: Some(believed), back_since };
        believed
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    pub name: NodeName,
    /// Reachable, of the right chain, and not paused.
    pub usable: bool,
    /// The chain that the node belongs to, if that is not ours.
    pub wrong_chain: Option<String>,
    pub failures: u32,
    pub last_error: Option<NodeError>,
    /// The highest head it reported, unless it has reported lower ones for long.
    pub head: Option<Head>,
    /// Whether it reports a lower head than it did before.
    pub went_back: bool,
}

#[derive(Debug)]
pub struct Node<C> {
    pub name: NodeName,
    chain: ChainName,
    client: C,
    state: Mutex<State>,
}

impl<C: NodeClient> Node<C> {
    pub fn new(chain: ChainName, name: &str, client: C) -> Self {
        let state = State {
            identity: Identity::Unchecked,
            failures: 0,
            rest_until: None,
            last_error: None,
            known: KnownHead::default(),
        };
        Self { name: name.into(), chain, client, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state consistent, so a panic in one of them does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks this node something, after its identity was checked, and records the outcome.
    pub async fn ask<'a, T, F>(&'a self, question: impl FnOnce(&'a C) -> F) -> Result<T, NodeError>
    where
        F: Future<Output = Result<T, NodeError>>,
    {
        let verified = self.state().identity == Identity::Verified;
        let started = Instant::now();
        let answer = match verified {
            true => question(&self.client).await,
            false => match self.client.verify().await {
                Ok(()) => {
                    self.state().identity = Identity::Verified;
                    question(&self.client).await
                }
                Err(error) => Err(error),
            },
        };
        self.record(answer.as_ref().err(), started.elapsed());
        answer
    }

    fn record(&self, error: Option<&NodeError>, took: Duration) {
        let labels = [("chain", self.chain.to_string()), ("node", self.name.to_string())];
        metrics::histogram!("bursar_chain_call_seconds", &labels).record(took.as_secs_f64());
        let Some(error) = error else {
            let mut state = self.state();
            state.failures = 0;
            state.rest_until = None;
            return;
        };
        metrics::counter!("bursar_chain_call_errors_total", &labels).increment(1);
        let mut state = self.state();
        state.last_error = Some(error.clone());
        if !error.blames_node() {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        let rest = if let NodeError::WrongChain { expected, found } = error {
            if state.identity != (Identity::Wrong { found: found.clone() }) {
                tracing::error!(chain = %self.chain, node = %self.name, expected, found, "a node of another chain is refused");
            }
            state.identity = Identity::Wrong { found: found.clone() };
            Some(WRONG_CHAIN_REST)
        } else {
            // After a failure another machine may answer behind the same address.
            state.identity = Identity::Unchecked;
            let over = state.failures.saturating_sub(FAILURES_BEFORE_REST);
            (state.failures >= FAILURES_BEFORE_REST)
                .then(|| SHORTEST_REST.saturating_mul(1 << over.min(10)).min(LONGEST_REST))
        };
        if let Some(rest) = rest {
            state.rest_until = Some(Instant::now() + rest);
        }
        tracing::warn!(chain = %self.chain, node = %self.name, failures = state.failures, %error, "node failed");
    }

    /// Records a head that this node reported and returns the highest one. A lower head is not believed at once, because a load
    /// balancer may have switched to a machine that lags. After a minute of only lower heads it is believed: the higher one was
    /// never there, and believing it would stop verdicts until the chain has grown that far. The same height with another hash
    /// is a reorg.
    pub fn saw_head(&self, head: Head) -> Head {
        let mut state = self.state();
        let head = state.known.observe(head, Instant::now());
        let labels = [("chain", self.chain.to_string()), ("node", self.name.to_string())];
        drop(state);
        metrics::gauge!("bursar_chain_head_number", &labels).set(head.number as f64);
        head
    }

    pub fn health(&self) -> NodeHealth {
        let state = self.state();
        let resting = state.rest_until.is_some_and(|until| until > Instant::now());
        NodeHealth {
            name: self.name.clone(),
            usable: state.identity == Identity::Verified && !resting,
            wrong_chain: match &state.identity {
                Identity::Wrong { found } => Some(found.clone()),
                Identity::Unchecked | Identity::Verified => None,
            },
            failures: state.failures,
            last_error: state.last_error.clone(),
            head: state.known.head,
            went_back: state.known.back_since.is_some(),
        }
    }

    /// The error to report instead of asking, while the node is paused.
    pub fn resting(&self) -> Option<NodeError> {
        let state = self.state();
        let resting = state.rest_until.is_some_and(|until| until > Instant::now());
        resting.then_some(NodeError::Resting { failures: state.failures })
    }
}

#[cfg(test)]
mod tests {
    use types::TxHash;

    use super::*;

    fn head(number: u64) -> Head {
        Head {
            number,
            hash: TxHash::from_array([7; 32]),
            parent: TxHash::from_array([6; 32]),
            timestamp_ms: 0,
        }
    }

    #[test]
    fn a_lower_head_is_believed_only_after_a_while_of_nothing_else() {
        let (mut known, start) = (KnownHead::default(), Instant::now());
        let mut at = |seconds: u64, number: u64| {
            let believed = known.observe(head(number), start + Duration::from_secs(seconds)).number;
            (believed, known.back_since.is_some())
        };
        assert_eq!(at(0, 10), (10, false));
        assert_eq!(at(1, 1_000_000), (1_000_000, false), "nobody can tell yet that it is not there");
        assert_eq!(at(2, 11), (1_000_000, true));
        assert_eq!(at(61, 30), (1_000_000, true));
        assert_eq!(at(62, 31), (31, false), "a minute of lower ones");
        assert_eq!(at(63, 30), (31, true));
        assert_eq!(at(64, 32), (32, false), "it has caught up");
        assert_eq!(at(125, 31), (32, true), "the minute begins again");
    }
}
