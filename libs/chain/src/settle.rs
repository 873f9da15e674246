//! What nodes' answers about claimed transactions have in common, whatever the kind of chain.

use crate::agreement::Answer;
use crate::edge::Standing;
use crate::node::NodeName;

/// Pools differ from node to node and contradict nobody: while no node calls it settled, one that has not heard of a
/// pending transaction says the same as one that has.
pub(crate) fn level_pools(
    mut answers: Vec<(NodeName, Answer<Standing>)>,
) -> Vec<(NodeName, Answer<Standing>)> {
    let settled = answers.iter().any(|(_, answer)| matches!(answer, Answer::Value(Standing::Settled(_))));
    let pending = answers.iter().any(|(_, answer)| matches!(answer, Answer::Value(Standing::NotFinal)));
    if pending && !settled {
        for (_, answer) in &mut answers {
            if matches!(answer, Answer::Value(Standing::NotSeen)) {
                *answer = Answer::Value(Standing::NotFinal);
            }
        }
    }
    answers
}
