//! How many blocks are requested at once. Pure.
//!
//! The number halves when a node refuses, follows a node's own proposal, doubles with each success, and aims at responses that
//! fit in memory many times over. It is never below one block and never above the range size.

/// Intended number of logs per response: about ten megabytes of JSON.
const TARGET_LOGS: u64 = 12_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    blocks: u64,
    most: u64,
}

impl Span {
    pub(crate) fn new(most: u64) -> Self {
        let most = most.max(1);
        Self { blocks: most, most }
    }

    pub(crate) fn blocks(self) -> u64 {
        self.blocks
    }

    /// A node refused `asked` blocks, and may have said how many it would take.
    pub(crate) fn refused(&mut self, asked: u64, proposed: Option<u64>) {
        let half = (asked / 2).max(1);
        let less = proposed.filter(|blocks| *blocks > 0 && *blocks < asked).unwrap_or(half);
        // Another request may have reduced it further meanwhile.
        self.blocks = self.blocks.min(less).max(1);
    }

    /// A node answered `asked` blocks with so many logs.
    pub(crate) fn answered(&mut self, asked: u64, logs: u64) {
        let fitting = asked.saturating_mul(TARGET_LOGS) / logs.max(1);
        let grown = self.blocks.max(asked).saturating_mul(2);
        self.blocks = grown.min(fitting).clamp(1, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_down_to_one_block_and_grows_back() {
        let mut span = Span::new(100);
        let mut seen = Vec::new();
        for _ in 0..8 {
            span.refused(span.blocks(), None);
            seen.push(span.blocks());
        }
        assert_eq!(seen, [50, 25, 12, 6, 3, 1, 1, 1]);
        for _ in 0..8 {
            span.answered(span.blocks(), 10);
        }
        assert_eq!(span.blocks(), 100);
    }

    #[test]
    fn a_proposal_is_taken_unless_it_asks_for_more() {
        let mut span = Span::new(1000);
        span.refused(1000, Some(123));
        assert_eq!(span.blocks(), 123);
        span.refused(123, Some(5000));
        assert_eq!(span.blocks(), 61);
        span.refused(61, Some(0));
        assert_eq!(span.blocks(), 30);
    }

    #[test]
    fn dense_blocks_shrink_it_before_any_node_complains() {
        let mut span = Span::new(100);
        span.answered(100, 120_000);
        assert_eq!(span.blocks(), 10);
        span.answered(10, 12_000_000);
        assert_eq!(span.blocks(), 1);
    }
}
