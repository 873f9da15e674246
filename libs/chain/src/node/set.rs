//! All nodes of one chain: failover for reads, questions to all of them, and what their answers add up to.

use std::future::Future;
use std::sync::Arc;

use futures::future::join_all;
use types::{ChainName, TxHash};

use super::agreement::{Agreement, NodeAnswer, reached_by};
use super::{Node, NodeClient, NodeConfig, NodeHealth, NodeName};
use crate::edge::{Claim, Seen, Sighting, TxStatus};
use crate::error::{ChainError, ConfigError, NodeError};
use crate::heads::Head;

/// One value for each node.
pub(crate) type Named<T> = Vec<(NodeName, T)>;

/// The nodes of one chain, in the operator's order of preference.
#[derive(Debug)]
pub struct NodeSet<C> {
    pub(super) chain: ChainName,
    pub(super) nodes: Vec<Arc<Node<C>>>,
    /// How many nodes must give the same answer before it counts for a verdict.
    quorum: usize,
    /// A node that is further behind the best one is not asked for what others can answer.
    max_lag_blocks: u64,
}

impl<C: NodeClient> NodeSet<C> {
    /// The default quorum is two, or one where there is only one node. `client` makes the client of an address; `None` means
    /// that the address is no http or https URL.
    pub fn new(
        chain: ChainName,
        configs: &[NodeConfig],
        quorum: Option<usize>,
        max_lag_blocks: u64,
        client: impl Fn(&str) -> Option<C>,
    ) -> Result<Self, ConfigError> {
        let mut nodes: Vec<Arc<Node<C>>> = Vec::with_capacity(configs.len());
        for config in configs {
            let name = || config.name.clone();
            if nodes.iter().any(|other| *other.name == config.name) {
                return Err(ConfigError::DuplicateNode { name: name() });
            }
            let client = client(&config.url).ok_or_else(|| ConfigError::BadUrl { name: name() })?;
            nodes.push(Arc::new(Node::new(chain.clone(), &config.name, client)));
        }
        if nodes.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        let quorum = quorum.unwrap_or(2.min(nodes.len()));
        if quorum == 0 || quorum > nodes.len() {
            return Err(ConfigError::Quorum { quorum, nodes: nodes.len() });
        }
        // The counter exists from the start, because the first disagreement would otherwise not look like an increase.
        metrics::counter!("bursar_chain_disagreements_total", "chain" => chain.to_string()).increment(0);
        Ok(Self { chain, nodes, quorum, max_lag_blocks })
    }

    pub fn quorum(&self) -> usize {
        self.quorum
    }

    pub fn health(&self) -> Vec<NodeHealth> {
        self.nodes.iter().map(|node| node.health()).collect()
    }

    /// Nodes in the order in which a read should try them: usable ones, then those that lag, then those that are paused.
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
        Err(self.nobody(tried))
    }

    /// Asks all nodes at once. A paused node is not asked and counts as failed; if all are paused, each is asked.
    pub async fn ask_all<T, F>(&self, question: impl Fn(Arc<Node<C>>) -> F) -> Named<Result<T, NodeError>>
    where
        F: Future<Output = Result<T, NodeError>>,
    {
        let all_rest = self.all_rest();
        let asked = self.nodes.iter().map(|node| {
            let answer = match node.resting().filter(|_| !all_rest) {
                None => Ok(question(node.clone())),
                Some(error) => Err(error),
            };
            let name = node.name.clone();
            async move {
                match answer {
                    Ok(answer) => (name, answer.await),
                    Err(error) => (name, Err(error)),
                }
            }
        });
        join_all(asked).await
    }

    pub(super) fn all_rest(&self) -> bool {
        self.nodes.iter().all(|node| node.resting().is_some())
    }

    /// Asks all nodes and combines what they say. A node that fails abstains.
    pub(crate) async fn agree<T, F>(&self, question: impl Fn(Arc<Node<C>>) -> F) -> Agreement<T>
    where
        T: PartialEq,
        F: Future<Output = Result<NodeAnswer<T>, NodeError>>,
    {
        let abstain = |error: NodeError| NodeAnswer::Abstain(error.to_string());
        let answers = self.ask_all(question).await;
        self.agreement(answers.into_iter().map(|(node, it)| (node, it.unwrap_or_else(abstain))).collect())
    }

    /// Asks all nodes for the status of each claim and combines what they say, claim by claim.
    pub(crate) async fn agree_on_claims<F>(
        &self,
        claims: &[Claim],
        statuses: impl Fn(Arc<Node<C>>) -> F,
    ) -> Vec<Agreement<TxStatus>>
    where
        F: Future<Output = Result<Vec<NodeAnswer<TxStatus>>, NodeError>>,
    {
        if claims.is_empty() {
            return Vec::new();
        }
        let answers = self.ask_all(statuses).await;
        let answers: Named<Vec<NodeAnswer<TxStatus>>> = answers
            .into_iter()
            .map(|(node, answer)| {
                let abstained = |error: NodeError| vec![NodeAnswer::Abstain(error.to_string()); claims.len()];
                (node, answer.unwrap_or_else(abstained))
            })
            .collect();
        (0..claims.len())
            .map(|index| {
                let of_claim = answers.iter().map(|(node, all)| (node.clone(), all[index].clone())).collect();
                self.agreement(level_pools(of_claim))
            })
            .collect()
    }

    /// Disagreement is counted and logged here, whoever asked.
    fn agreement<T: PartialEq>(&self, answers: Named<NodeAnswer<T>>) -> Agreement<T> {
        let agreement = Agreement::of(answers, self.quorum);
        if agreement.is_disagreement() {
            metrics::counter!("bursar_chain_disagreements_total", "chain" => self.chain.to_string())
                .increment(1);
            tracing::warn!(chain = %self.chain, "nodes disagree");
        }
        agreement
    }

    /// Where each hash was seen at best, over all nodes that answered.
    pub(crate) async fn lookup<F>(
        &self,
        hashes: &[TxHash],
        seen: impl Fn(Arc<Node<C>>) -> F,
    ) -> Result<Vec<Sighting>, ChainError>
    where
        F: Future<Output = Result<Vec<Seen>, NodeError>>,
    {
        let (answers, failed) = split(self.ask_all(seen).await);
        if answers.is_empty() {
            return Err(self.nobody(failed));
        }
        let (answered, asked) = (answers.len(), self.nodes.len());
        let best = |index: usize| {
            let seen = answers.iter().filter_map(|(_, answer)| answer.get(index).copied());
            seen.max_by_key(Seen::certainty).unwrap_or(Seen::Nowhere)
        };
        let sighting =
            |(index, hash): (usize, &TxHash)| Sighting { hash: *hash, seen: best(index), answered, asked };
        Ok(hashes.iter().enumerate().map(sighting).collect())
    }

    /// The head of the first node, in order of preference, that is not too far behind.
    pub(crate) fn preferred_head(&self, heads: Named<Result<Head, NodeError>>) -> Result<Head, ChainError> {
        let (heads, failed) = split(heads);
        let best = heads.iter().map(|(_, head)| head.number).max().unwrap_or(0);
        let near = |head: &Head| head.number.saturating_add(self.max_lag_blocks) >= best;
        heads.into_iter().map(|(_, head)| head).find(near).ok_or_else(|| self.nobody(failed))
    }

    /// The highest number that a quorum of nodes reaches.
    pub(crate) fn reached(&self, numbers: Named<Result<u64, NodeError>>) -> Result<u64, ChainError> {
        let (numbers, failed) = split(numbers);
        let numbers = numbers.into_iter().map(|(_, number)| number).collect();
        reached_by(self.quorum, numbers).ok_or_else(|| self.nobody(failed))
    }

    /// The error when no node could answer.
    pub fn nobody(&self, answers: impl IntoIterator<Item = (NodeName, NodeError)>) -> ChainError {
        ChainError::NoNode { chain: self.chain.clone(), tried: answers.into_iter().collect() }
    }
}

/// Pools differ from node to node, which is no contradiction: while no node calls a transaction settled, a node that does not
/// know a pending one agrees with a node that does.
fn level_pools(mut answers: Named<NodeAnswer<TxStatus>>) -> Named<NodeAnswer<TxStatus>> {
    let settled = answers.iter().any(|(_, answer)| matches!(answer, NodeAnswer::Value(TxStatus::Settled(_))));
    let pending = answers.iter().any(|(_, answer)| matches!(answer, NodeAnswer::Value(TxStatus::NotFinal)));
    if pending && !settled {
        for (_, answer) in &mut answers {
            if matches!(answer, NodeAnswer::Value(TxStatus::NotSeen)) {
                *answer = NodeAnswer::Value(TxStatus::NotFinal);
            }
        }
    }
    answers
}

/// Separates answers from failures.
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
