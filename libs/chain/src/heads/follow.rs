//! Brings a ring of heads to a chain's tip.
//!
//! One call reads about `limit` blocks, so that a reader which was away for long catches up over several calls and can save its
//! place between them.

use types::TxHash;

use crate::edge::{Block, ChainEdge, Detail};
use crate::error::ChainError;
use crate::heads::{Head, HeadRing, Reorg, RingUpdate};

/// Blocks read in one request.
const BLOCKS_PER_READ: u64 = 32;

/// One change of the canonical chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These blocks are no longer canonical; what they held is open again. It always comes before the blocks that replace them.
    Undone(Reorg),
    Appended(Block),
}

/// What one call found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    pub steps: Vec<Step>,
    /// The chain's tip when the call began.
    pub tip: Head,
    /// Whether the ring has reached that tip.
    pub caught_up: bool,
    /// Set if the chain differs below everything in the ring, which is deeper than any verdict allows for. Halt and alert.
    pub lost: Option<Head>,
}

/// Reads what is new. An empty ring starts at block `start`, which should be a final one.
pub async fn follow(
    edge: &dyn ChainEdge,
    ring: &mut HeadRing,
    start: u64,
    detail: Detail,
    limit: usize,
) -> Result<Followed, ChainError> {
    let tip = edge.head().await?;
    let mut followed = Followed { steps: Vec::new(), tip, caught_up: false, lost: None };
    // A node that is behind the ring has nothing new, and what it has below may be a dead branch.
    let behind = ring.tip().is_some_and(|known| known.number > tip.number);
    let mut next = match ring.tip() {
        Some(known) if same(known, tip.number, &tip.hash) => {
            followed.caught_up = true;
            return Ok(followed);
        }
        Some(known) => known.number.saturating_add(1).min(tip.number),
        None => start.min(tip.number),
    };
    // Walking back to a fork must not use up the limit for going forward, or a small limit would never get past a deep reorg.
    // The length of the ring bounds the way back.
    let mut left = limit.max(1).saturating_add(ring.len());
    let mut walking_back = false;
    while !behind && left > 0 && next <= tip.number {
        let count = if walking_back { 1 } else { BLOCKS_PER_READ.min(left as u64) };
        let last = tip.number.min(next + count - 1);
        let blocks = edge.blocks(next..=last, detail).await?;
        if blocks.is_empty() {
            break;
        }
        for block in blocks {
            left = left.saturating_sub(1);
            let head = block.head;
            match ring.insert(head) {
                RingUpdate::Appended => followed.steps.push(Step::Appended(block)),
                RingUpdate::Known => {}
                RingUpdate::Replaced(reorg) => {
                    followed.steps.push(Step::Undone(reorg));
                    followed.steps.push(Step::Appended(block));
                }
                RingUpdate::Ahead { read_from } => {
                    next = read_from;
                    break;
                }
                RingUpdate::Orphan { read } => {
                    (next, walking_back) = (read, true);
                    break;
                }
                RingUpdate::Lost { lowest } => {
                    followed.lost = Some(lowest);
                    return Ok(followed);
                }
            }
            (next, walking_back) = (head.number + 1, false);
        }
    }
    followed.caught_up = ring.tip().is_some_and(|known| known.number >= tip.number);
    Ok(followed)
}

fn same(known: &Head, number: u64, hash: &TxHash) -> bool {
    known.number == number && known.hash == *hash
}
