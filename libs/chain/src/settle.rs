//! What nodes' answers about claimed transactions have in common, whatever the kind of chain.

use crate::agreement::NodeAnswer;
use crate::edge::TxStatus;
use crate::node::NodeName;

/// Pools differ from node to node and contradict nobody: while no node calls it settled, one that has not heard of a
/// pending transaction says the same as one that has.
pub(crate) fn level_pools(
    mut answers: Vec<(NodeName, NodeAnswer<TxStatus>)>,
) -> Vec<(NodeName, NodeAnswer<TxStatus>)> {
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
