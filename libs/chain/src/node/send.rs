//! Sending signed bytes to every node at once, for every family of chain.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use types::TxHash;

use super::set::NodeSet;
use super::{Node, NodeClient, NodeName};
use crate::broadcast::{Broadcast, BroadcastOutcome};
use crate::evm::classify::send_failed;

impl<C: NodeClient> NodeSet<C> {
    /// Sends to every node and combines the outcomes, one result for each transaction.
    pub(crate) async fn broadcast<F>(
        &self,
        raw: &[Vec<u8>],
        linger: Duration,
        hash_of: fn(&[u8]) -> TxHash,
        send: impl Fn(Arc<Node<C>>, Arc<[Vec<u8>]>) -> F,
    ) -> Vec<Broadcast>
    where
        F: Future<Output = Vec<BroadcastOutcome>> + Send + 'static,
    {
        if raw.is_empty() {
            return Vec::new();
        }
        let outcomes = self.send_to_all(raw, linger, send).await;
        raw.iter()
            .enumerate()
            .map(|(index, raw)| {
                let nodes = outcomes.iter().map(|(node, all)| (node.clone(), all[index].clone())).collect();
                let broadcast = Broadcast::new(hash_of(raw), nodes);
                let labels =
                    [("chain", self.chain.to_string()), ("outcome", broadcast.merged.label().to_owned())];
                metrics::counter!("bursar_chain_broadcasts_total", &labels).increment(1);
                broadcast
            })
            .collect()
    }

    /// As soon as one node has everything, the others are waited for only a little longer. Their requests continue in the
    /// background, so that they still get the bytes.
    async fn send_to_all<F>(
        &self,
        raw: &[Vec<u8>],
        linger: Duration,
        send: impl Fn(Arc<Node<C>>, Arc<[Vec<u8>]>) -> F,
    ) -> Vec<(NodeName, Vec<BroadcastOutcome>)>
    where
        F: Future<Output = Vec<BroadcastOutcome>> + Send + 'static,
    {
        let shared: Arc<[Vec<u8>]> = raw.into();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(self.nodes.len().max(1));
        let silent = BroadcastOutcome::Unknown { reason: "no answer yet".to_owned() };
        let mut outcomes: Vec<_> =
            self.nodes.iter().map(|node| (node.name.clone(), vec![silent.clone(); raw.len()])).collect();
        // A dead node is left out, because a waiting request would otherwise pile up for each transaction that is sent.
        let all_rest = self.all_rest();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(error) = node.resting().filter(|_| !all_rest) {
                outcomes[index].1 = vec![send_failed(&error); raw.len()];
                continue;
            }
            let (sent, sender) = (send(node.clone(), shared.clone()), sender.clone());
            tokio::spawn(async move {
                let outcomes = sent.await;
                // After the linger time nobody receives this any more.
                let _ = sender.send((index, outcomes)).await;
            });
        }
        drop(sender);
        let mut deadline = None;
        loop {
            let received = match deadline {
                None => receiver.recv().await,
                Some(deadline) => tokio::time::timeout_at(deadline, receiver.recv()).await.unwrap_or(None),
            };
            let Some((index, answered)) = received else { return outcomes };
            if deadline.is_none() && answered.iter().all(BroadcastOutcome::in_pool) {
                deadline = Some(tokio::time::Instant::now() + linger);
            }
            outcomes[index].1 = answered;
        }
    }
}
