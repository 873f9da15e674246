//! The nodes of one chain: who they are, how they fare, and how questions are spread over them.
//!
//! Owns identity (a node is asked which chain it belongs to before anything else, and again after each failure),
//! health, failover for reads, asking all for agreement, and sending to all. Generic over the client, so that every
//! kind of chain treats its nodes alike.
//!
//! Invariants: a node of another chain is never asked anything but its identity; a node's head never goes back in
//! number; and a failing node delays answers for a bounded time only, after which it rests.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use types::ChainName;

use crate::agreement::{Agreement, NodeAnswer};
use crate::error::{ChainError, ConfigError, NodeError};
use crate::heads::Head;

/// The operator's name for a node; safe to log, unlike its address.
pub type NodeName = Arc<str>;

/// Failures in a row after which a node rests.
const FAILURES_BEFORE_REST: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How often a node of another chain is asked again; somebody has to change its address first.
const WRONG_CHAIN_REST: Duration = Duration::from_secs(30);
/// How long a node has to stay below a head it reported until that one is forgotten.
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

/// What a kind of chain must be able to ask one of its nodes.
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
    sight: Sight,
}

/// What a node showed of its chain.
#[derive(Debug, Default)]
struct Sight {
    head: Option<Head>,
    /// Since when it has reported nothing but heads below that one.
    back_since: Option<Instant>,
}

impl Sight {
    /// Takes a head and gives the one to go by.
    fn take(&mut self, head: Head, now: Instant) -> Head {
        let higher = self.head.filter(|known| known.number > head.number);
        let (believed, back_since) = match (higher, self.back_since) {
            (None, _) => (head, None),
            (Some(_), Some(since)) if now.duration_since(since) >= BELIEVED_AFTER => (head, None),
            (Some(known), since) => (known, since.or(Some(now))),
        };
        *self = Self { head: Some(believed), back_since };
        believed
    }
}

/// One node as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    pub name: NodeName,
    /// Reachable, of the right chain, and not resting.
    pub usable: bool,
    /// The chain it claims to be of, when that is not ours.
    pub wrong_chain: Option<String>,
    pub failures: u32,
    pub last_error: Option<NodeError>,
    /// The highest head it reported, unless it has long gone back on it.
    pub head: Option<Head>,
    /// It reports a lower head than it once did.
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
            sight: Sight::default(),
        };
        Self { name: name.into(), chain, client, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state whole, so a panic elsewhere cannot have torn it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks this node something, after its identity is known, and records how it fared.
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
                tracing::error!(chain = %self.chain, node = %self.name, expected, found, "node of another chain refused");
            }
            state.identity = Identity::Wrong { found: found.clone() };
            Some(WRONG_CHAIN_REST)
        } else {
            // Whoever answers after a failure may be another machine behind the same address.
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

    /// Remembers a head this node reported and gives the highest it did. A lower one than before is not believed at once: a
    /// balancer may have turned to a machine that lags. After a minute of nothing else it is: then the higher one was never
    /// there, and to go by it would stop verdicts until the chain has grown as far. The same height with another hash is a reorg.
    pub fn saw_head(&self, head: Head) -> Head {
        let mut state = self.state();
        let head = state.sight.take(head, Instant::now());
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
            head: state.sight.head,
            went_back: state.sight.back_since.is_some(),
        }
    }

    /// Why this node is left alone just now, if it is.
    pub fn resting(&self) -> Option<NodeError> {
        let state = self.state();
        let resting = state.rest_until.is_some_and(|until| until > Instant::now());
        resting.then_some(NodeError::Resting { failures: state.failures })
    }
}

/// All nodes of one chain, in the operator's order of preference.
#[derive(Debug)]
pub struct NodeSet<C> {
    chain: ChainName,
    nodes: Vec<Arc<Node<C>>>,
    /// How many nodes must say the same before it counts for a verdict.
    quorum: usize,
    /// A node further behind the best one than this is not asked for what others can answer.
    max_lag_blocks: u64,
}

impl<C: NodeClient> NodeSet<C> {
    /// Without a quorum: two, or one where there is only one node.
    pub fn new(
        chain: ChainName,
        nodes: Vec<Node<C>>,
        quorum: Option<usize>,
        max_lag_blocks: u64,
    ) -> Result<Self, ConfigError> {
        if nodes.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        for (index, node) in nodes.iter().enumerate() {
            if nodes[..index].iter().any(|other| other.name == node.name) {
                return Err(ConfigError::DuplicateNode { name: node.name.to_string() });
            }
        }
        let quorum = quorum.unwrap_or(2.min(nodes.len()));
        if quorum == 0 || quorum > nodes.len() {
            return Err(ConfigError::Quorum { quorum, nodes: nodes.len() });
        }
        // Shown from the start, or the first disagreement would not look like a rise.
        metrics::counter!("bursar_chain_disagreements_total", "chain" => chain.to_string()).increment(0);
        Ok(Self { chain, nodes: nodes.into_iter().map(Arc::new).collect(), quorum, max_lag_blocks })
    }

    pub fn quorum(&self) -> usize {
        self.quorum
    }

    pub fn all(&self) -> &[Arc<Node<C>>] {
        &self.nodes
    }

    pub fn health(&self) -> Vec<NodeHealth> {
        self.nodes.iter().map(|node| node.health()).collect()
    }

    /// Nodes in the order a read should try them: able ones first, then those that lag, then those that rest.
    fn by_preference(&self) -> Vec<Arc<Node<C>>> {
        let health = self.health();
        let best = health.iter().filter_map(|node| node.head).map(|head| head.number).max().unwrap_or(0);
        let mut order: Vec<_> = self.nodes.iter().zip(&health).collect();
        order.sort_by_key(|(node, health)| {
            let behind =
                health.head.is_some_and(|head| head.number.saturating_add(self.max_lag_blocks) < best);
            (health.wrong_chain.is_some(), node.resting().is_some(), behind || health.went_back)
        });
        order.into_iter().map(|(node, _)| node.clone()).collect()
    }

    /// Asks one node after the other until one answers.
    pub async fn read<T, F>(&self, question: impl Fn(Arc<Node<C>>) -> F) -> Result<T, ChainError>
    where
        F: Future<Output = Result<T, NodeError>>,
    {
        let mut tried = Vec::new();
        for node in self.by_preference() {
            match question(node.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => tried.push((node.name.clone(), error)),
            }
        }
        Err(ChainError::NoNode { chain: self.chain.clone(), tried })
    }

    /// Asks all nodes at once. One that rests answers with that, unless all do: then each is tried.
    pub async fn ask_all<T, F>(
        &self,
        question: impl Fn(Arc<Node<C>>) -> F,
    ) -> Vec<(NodeName, Result<T, NodeError>)>
    where
        F: Future<Output = Result<T, NodeError>>,
    {
        let all_rest = self.nodes.iter().all(|node| node.resting().is_some());
        let asked = self.nodes.iter().map(|node| {
            let resting = if all_rest { None } else { node.resting() };
            let answer = resting.is_none().then(|| question(node.clone()));
            let name = node.name.clone();
            async move {
                match (answer, resting) {
                    (Some(answer), _) => (name, answer.await),
                    (None, Some(error)) => (name, Err(error)),
                    (None, None) => (name, Err(NodeError::Resting { failures: 0 })),
                }
            }
        });
        join_all(asked).await
    }

    /// The preferred node's head among these: the first, in order of preference, that is not too far behind.
    pub fn preferred_head(&self, heads: &[(NodeName, Head)]) -> Option<Head> {
        let best = heads.iter().map(|(_, head)| head.number).max()?;
        heads
            .iter()
            .map(|(_, head)| *head)
            .find(|head| head.number.saturating_add(self.max_lag_blocks) >= best)
    }

    /// What the nodes' answers come to. Disagreement is counted and logged here, whoever asked.
    pub fn agreement<T: PartialEq>(&self, answers: Vec<(NodeName, NodeAnswer<T>)>) -> Agreement<T> {
        let agreement = Agreement::of(answers, self.quorum);
        if agreement.is_disagreement() {
            metrics::counter!("bursar_chain_disagreements_total", "chain" => self.chain.to_string())
                .increment(1);
            tracing::warn!(chain = %self.chain, "nodes disagree");
        }
        agreement
    }

    /// What stands when no node could answer.
    pub fn nobody(&self, answers: impl IntoIterator<Item = (NodeName, NodeError)>) -> ChainError {
        ChainError::NoNode { chain: self.chain.clone(), tried: answers.into_iter().collect() }
    }
}

/// A failed question is an abstention.
pub fn or_abstain<T>(answer: Result<NodeAnswer<T>, NodeError>) -> NodeAnswer<T> {
    answer.unwrap_or_else(|error| NodeAnswer::Abstain(error.to_string()))
}

pub(crate) type Named<T> = Vec<(NodeName, T)>;

/// Answers and failures apart.
pub(crate) fn split<T>(answers: Named<Result<T, NodeError>>) -> (Named<T>, Named<NodeError>) {
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    for (node, answer) in answers {
        match answer {
            Ok(value) => good.push((node, value)),
            Err(error) => failed.push((node, error)),
        }
    }
    (good, failed)
}

#[cfg(test)]
mod tests {
    use types::TxHash;

    use super::*;

    fn head(number: u64) -> Head {
        Head { number, hash: TxHash([7; 32]), parent: TxHash([6; 32]), timestamp_ms: 0 }
    }

    #[test]
    fn a_lower_head_is_believed_only_after_a_while_of_nothing_else() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        let mut at = |seconds: u64, number: u64| {
            let believed = sight.take(head(number), start + Duration::from_secs(seconds)).number;
            (believed, sight.back_since.is_some())
        };
        assert_eq!(at(0, 10), (10, false));
        assert_eq!(at(1, 1_000_000), (1_000_000, false), "nobody can tell yet that it is not there");
        assert_eq!(at(2, 11), (1_000_000, true));
        assert_eq!(at(61, 30), (1_000_000, true));
        assert_eq!(at(62, 31), (31, false), "a minute of lower ones");
        assert_eq!(at(63, 30), (31, true));
        assert_eq!(at(64, 32), (32, false), "it has caught up");
        assert_eq!(at(125, 31), (32, true), "the minute begins anew");
    }
}
