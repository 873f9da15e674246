//! Sending signed bytes to every node at once, whatever the kind of chain.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::broadcast::BroadcastOutcome;
use crate::evm::classify::send_failed;
use crate::node::{Node, NodeClient, NodeName, NodeSet};

/// Sends to every node and gives each node's outcomes. As soon as one node has everything, the others are waited for
/// only a little longer; their requests go on in the background, so that they still get the bytes.
pub(crate) async fn send_to_all<C, F>(
    nodes: &NodeSet<C>,
    raw: &[Vec<u8>],
    linger: Duration,
    send: impl Fn(Arc<Node<C>>, Arc<[Vec<u8>]>) -> F,
) -> Vec<(NodeName, Vec<BroadcastOutcome>)>
where
    C: NodeClient,
    F: Future<Output = Vec<BroadcastOutcome>> + Send + 'static,
{
    let nodes = nodes.all();
    let shared: Arc<[Vec<u8>]> = raw.into();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(nodes.len().max(1));
    let silent = BroadcastOutcome::Unknown { reason: "no answer yet".to_owned() };
    let mut outcomes: Vec<_> =
        nodes.iter().map(|node| (node.name.clone(), vec![silent.clone(); raw.len()])).collect();
    // A dead node would otherwise gather one waiting request for each transaction sent.
    let all_rest = nodes.iter().all(|node| node.resting().is_some());
    for (index, node) in nodes.iter().enumerate() {
        if let Some(error) = node.resting().filter(|_| !all_rest) {
            outcomes[index].1 = vec![send_failed(&error); raw.len()];
            continue;
        }
        let (sent, sender) = (send(node.clone(), shared.clone()), sender.clone());
        tokio::spawn(async move {
            let outcomes = sent.await;
            // Nobody listens any more once the linger is over.
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
