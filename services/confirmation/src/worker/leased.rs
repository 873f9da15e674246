//! What the holder of a chain's lease knows, and the transactions it writes.
//!
//! What is kept in memory is a copy of what is stored, or a hint that may be lost at any time.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use chain::{Head, HeadRing};
use chrono::{DateTime, Utc};
use payment::BlockRef;
use sqlx::{PgConnection, PgTransaction};
use types::JobId;

use crate::error::Error;
use crate::heads::{Fence, Lease, NodeStatus};

/// Hints about more jobs than this are dropped: losing one costs a few calls to nodes.
const MAX_HINTS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Leased {
    pub(super) lease: Lease,
    pub(super) ring: HeadRing,
    /// As stored when the lease was last proven.
    pub(super) final_block: Option<BlockRef>,
    pub(super) halted: bool,
    /// The newest final block that the nodes agree on; verdicts are given as of this block.
    pub(super) as_of: Option<Head>,
    /// When verdicts are tried again without a new block.
    pub(super) settle_at: Instant,
    /// Whether included watches may carry a reason for a delay that concerns all of them. True at first, because the holder
    /// before may have written one.
    pub(super) delayed_all: bool,
    pub(super) void_at: Instant,
    /// How far below the registered block the search for a foreign transaction begins, for nonces used before that.
    pub(super) lookback: HashMap<JobId, u64>,
    /// Jobs whose nonce is used up by something that may be a payment of theirs. They are checked in addition.
    pub(super) doubted: BTreeSet<JobId>,
    /// The next check for used-up bindings goes on behind this job.
    pub(super) void_after: Option<JobId>,
    pub(super) proven_at: Instant,
    pub(super) nodes: Vec<NodeStatus>,
    pub(super) nodes_at: Option<Instant>,
}

impl Leased {
    pub(super) fn new(lease: Lease, ring: HeadRing, fence: Fence) -> Self {
        let now = Instant::now();
        let mut leased = Self {
            lease,
            ring,
            final_block: None,
            halted: false,
            as_of: None,
            settle_at: now,
            delayed_all: true,
            void_at: now,
            lookback: HashMap::new(),
            doubted: BTreeSet::new(),
            void_after: None,
            proven_at: now,
            nodes: Vec::new(),
            nodes_at: None,
        };
        leased.note(fence);
        leased
    }

    /// Takes over what a proof of the lease found.
    pub(super) fn note(&mut self, fence: Fence) {
        self.final_block = fence.final_block;
        self.halted = fence.halted_reason.is_some();
        self.proven_at = Instant::now();
    }

    /// Drops hints about jobs that are no longer checked. `is_all` says that every job to be checked was listed.
    pub(super) fn drop_hints(&mut self, is_listed: impl Fn(&JobId) -> bool, is_all: bool) {
        if is_all {
            self.lookback.retain(|job, _| is_listed(job));
            self.doubted.retain(|job| is_listed(job));
        } else if self.lookback.len() + self.doubted.len() > MAX_HINTS {
            self.lookback.clear();
            self.doubted.clear();
        }
    }
}

/// A transaction that has proven the lease, and therefore holds it until the commit.
#[derive(Debug)]
pub(super) struct FencedTx {
    pub(super) tx: PgTransaction<'static>,
    pub(super) fence: Fence,
}

impl FencedTx {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.fence.now
    }

    pub(super) fn is_halted(&self) -> bool {
        self.fence.halted_reason.is_some()
    }

    pub(super) async fn commit(self, leased: &mut Leased) -> Result<(), Error> {
        self.tx.commit().await?;
        leased.note(self.fence);
        Ok(())
    }
}
