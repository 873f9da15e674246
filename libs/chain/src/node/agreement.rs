//! What several nodes say about one fact.
//!
//! Disagreement is a value and not an error: a verdict about money waits until it ends, and an alert is raised. A node that cannot
//! know (it lags, was pruned, did not answer) abstains, and an abstention never counts as a "no".
//!
//! Invariant: `Agreed` needs at least `quorum` nodes with the same answer and no node with another.

use crate::node::NodeName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAnswer<T> {
    Value(T),
    /// The node cannot know, so it says nothing about the fact.
    Abstain(String),
    /// The node contradicts what was agreed before; for instance it has another block at a final height.
    Conflict(String),
}

/// The answers of all nodes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Agreement<T> {
    Agreed {
        value: T,
        by: Vec<NodeName>,
    },
    /// At least two nodes contradict each other. Raise an alert, decide nothing, retry later.
    Disagreed {
        answers: Vec<(NodeName, T)>,
        conflicts: Vec<(NodeName, String)>,
    },
    /// No node contradicts another, but too few could answer. Decide nothing, retry later.
    TooFew {
        needed: usize,
        answers: Vec<(NodeName, T)>,
        silent: Vec<(NodeName, String)>,
    },
}

impl<T: PartialEq> Agreement<T> {
    pub fn of(answers: Vec<(NodeName, NodeAnswer<T>)>, quorum: usize) -> Self {
        let (mut values, mut silent, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
        for (node, answer) in answers {
            match answer {
                NodeAnswer::Value(value) => values.push((node, value)),
                NodeAnswer::Abstain(why) => silent.push((node, why)),
                NodeAnswer::Conflict(why) => conflicts.push((node, why)),
            }
        }
        let contradicted = values.windows(2).any(|pair| pair[0].1 != pair[1].1);
        if contradicted || !conflicts.is_empty() {
            return Self::Disagreed { answers: values, conflicts };
        }
        if values.len() < quorum.max(1) {
            return Self::TooFew { needed: quorum.max(1), answers: values, silent };
        }
        let by = values.iter().map(|(node, _)| node.clone()).collect();
        match values.into_iter().next() {
            Some((_, value)) => Self::Agreed { value, by },
            None => Self::TooFew { needed: quorum.max(1), answers: Vec::new(), silent },
        }
    }
}

impl<T> Agreement<T> {
    pub fn agreed(self) -> Option<T> {
        match self {
            Self::Agreed { value, .. } => Some(value),
            Self::Disagreed { .. } | Self::TooFew { .. } => None,
        }
    }

    pub fn is_disagreement(&self) -> bool {
        match self {
            Self::Disagreed { .. } => true,
            Self::Agreed { .. } | Self::TooFew { .. } => false,
        }
    }
}

/// The highest number that at least `quorum` of these reach; with fewer numbers than that, the lowest.
///
/// One node that reports too much (a lie, a fork) therefore has no influence, while a missing node does not stop all reading.
pub fn reached_by(quorum: usize, mut numbers: Vec<u64>) -> Option<u64> {
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let index = quorum.max(1).min(numbers.len()).checked_sub(1)?;
    numbers.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(answers: Vec<NodeAnswer<u8>>) -> Vec<(NodeName, NodeAnswer<u8>)> {
        answers.into_iter().enumerate().map(|(i, a)| (NodeName::from(format!("n{i}")), a)).collect()
    }

    #[test]
    fn one_dissenter_is_enough_to_withhold_agreement() {
        let said = named(vec![NodeAnswer::Value(1), NodeAnswer::Value(1), NodeAnswer::Value(2)]);
        assert!(Agreement::of(said, 2).is_disagreement());
        let said =
            named(vec![NodeAnswer::Value(1), NodeAnswer::Value(1), NodeAnswer::Conflict("fork".into())]);
        assert!(Agreement::of(said, 2).is_disagreement());
    }

    #[test]
    fn an_abstention_is_neither_yes_nor_no() {
        let said =
            named(vec![NodeAnswer::Value(1), NodeAnswer::Abstain("lags".into()), NodeAnswer::Value(1)]);
        assert_eq!(Agreement::of(said, 2).agreed(), Some(1));
        let said = named(vec![NodeAnswer::Value(1), NodeAnswer::Abstain("lags".into())]);
        assert!(matches!(Agreement::of(said, 2), Agreement::TooFew { needed: 2, .. }));
    }

    #[test]
    fn nobody_answering_is_never_agreement() {
        assert!(matches!(Agreement::<u8>::of(Vec::new(), 0), Agreement::TooFew { needed: 1, .. }));
    }

    #[test]
    fn one_node_alone_cannot_raise_a_number() {
        assert_eq!(reached_by(2, vec![10, 99, 10]), Some(10));
        assert_eq!(reached_by(2, vec![7]), Some(7));
        assert_eq!(reached_by(2, vec![7, 9]), Some(7));
        assert_eq!(reached_by(1, vec![7, 9]), Some(9));
        assert_eq!(reached_by(2, Vec::new()), None);
    }
}
