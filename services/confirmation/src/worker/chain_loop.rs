//! One chain: holds its lease and takes one tick after the other.
//!
//! Owns the order of a tick: heads first, so that everything after it is judged against the canonical chain as it is
//! known now. What is kept in memory is a copy of what is stored, or a hint that may be lost at any time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chain::{ChainEdge, ChainError, Head, HeadRing};
use payment::BlockRef;
use sqlx::PgPool;
use types::{ChainName, JobId};

use crate::chains::Settings;
use crate::config::Follow;
use crate::heads::{self, Fence, Lease, NodeStanding};
use crate::watch::WatchError;
use crate::watch::verdict::AttestationKey;

/// How often the nodes' heads are written down when nothing is wrong with them.
const NODES_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl From<sqlx::Error> for LoopError {
    fn from(error: sqlx::Error) -> Self {
        Self::Watch(error.into())
    }
}

/// What every loop is given.
#[derive(Debug, Clone)]
pub struct Parts {
    pub pool: PgPool,
    pub key: AttestationKey,
    pub follow: Follow,
    /// Shown with the lease.
    pub owner: String,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticked {
    /// Another replica follows this chain.
    NotOurs,
    /// Everything known was looked at.
    Idle,
    /// There is more to do at once.
    Busy,
}

#[derive(Debug)]
pub struct ChainLoop {
    pub(super) parts: Parts,
    pub(super) settings: Settings,
    pub(super) edge: Arc<dyn ChainEdge>,
    held: Option<Held>,
    /// Of what is held, also while a tick has the rest: one that is dropped half-way must not keep the chain from others.
    lease: Option<Lease>,
}

/// What a holder of the lease knows.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) ring: HeadRing,
    /// As stored when the lease was last proven.
    pub(super) final_block: Option<BlockRef>,
    pub(super) halted: bool,
    /// The newest agreed final block with its time and parent; what verdicts are as of.
    pub(super) asof: Option<Head>,
    /// When verdicts are looked at again without a new block.
    pub(super) settle_at: Instant,
    /// Whether all included watches may say that they are delayed; nobody knows whether the holder before has said so.
    pub(super) delayed_all: bool,
    pub(super) void_at: Instant,
    /// How far below the registered block the search for a foreign transaction begins, for nonces used before that.
    pub(super) lookback: HashMap<JobId, u64>,
    /// Jobs whose nonce is used up by something that may be a payment of theirs. They are asked about besides.
    pub(super) doubted: BTreeSet<JobId>,
    /// Behind which job the next look for used-up bindings begins; none for the first.
    pub(super) void_after: Option<JobId>,
    proven_at: Instant,
    nodes: Vec<NodeStanding>,
    nodes_at: Option<Instant>,
}

impl ChainLoop {
    pub fn new(parts: Parts, settings: Settings, edge: Arc<dyn ChainEdge>) -> Self {
        let chain = settings.name.to_string();
        // Shown from the start, or the first disagreement would not look like a rise.
        metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain.clone()).increment(0);
        metrics::counter!("bursar_confirmation_loop_errors_total", "chain" => chain).increment(0);
        Self { parts, settings, edge, held: None, lease: None }
    }

    pub fn chain(&self) -> &ChainName {
        &self.settings.name
    }

    /// New settings and the edge made from them. What was remembered of the chain stays.
    pub fn replace(&mut self, settings: Settings, edge: Arc<dyn ChainEdge>) {
        (self.settings, self.edge) = (settings, edge);
        let capacity = self.ring_capacity();
        if let Some(held) = &mut self.held {
            // A greater depth needs a longer memory.
            held.ring = HeadRing::restore(capacity, held.ring.iter().copied());
            held.asof = None;
            held.settle_at = Instant::now();
        }
    }

    /// One look at everything that may have changed. Takes no input, is bounded, and may be repeated at any time.
    pub async fn tick(&mut self) -> Result<Ticked, LoopError> {
        let Some(mut held) = self.hold().await? else { return Ok(Ticked::NotOurs) };
        let ticked = self.tick_held(&mut held).await;
        if !matches!(ticked, Err(LoopError::Watch(WatchError::LeaseLost { .. }))) {
            self.held = Some(held);
        }
        ticked
    }

    async fn tick_held(&self, held: &mut Held) -> Result<Ticked, LoopError> {
        let followed = self.follow(held).await;
        // Told even when no node could be reached: that is when people look.
        self.tell_nodes(held).await?;
        let followed = followed?;
        let mut busy = !followed.caught_up;
        busy |= self.look_up(held).await?;
        self.keep(held).await?;
        if followed.moved || held.settle_at <= Instant::now() {
            self.settle(held).await?;
        }
        if held.void_at <= Instant::now() {
            self.check_void(held).await?;
        }
        self.keep(held).await?;
        Ok(if busy { Ticked::Busy } else { Ticked::Idle })
    }

    /// A ring that does not reach below the depth could not tell a reorg that matters from one that does not.
    pub(super) fn ring_capacity(&self) -> usize {
        let depth = usize::try_from(self.settings.depth).unwrap_or(usize::MAX);
        self.parts.follow.ring_blocks.max(depth.saturating_mul(2))
    }

    /// Gives the chain up, so that another replica takes over at once.
    pub async fn release(&mut self) -> Result<(), LoopError> {
        self.held = None;
        match self.lease.take() {
            Some(lease) => Ok(lease.release(&self.parts.pool).await?),
            None => Ok(()),
        }
    }

    async fn hold(&mut self) -> Result<Option<Held>, LoopError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let Parts { pool, follow, owner, .. } = &self.parts;
        let Some(lease) = Lease::acquire(pool, &self.settings.name, owner, follow.lease).await? else {
            return Ok(None);
        };
        self.lease = Some(lease.clone());
        let ring = heads::repo::load_ring(pool, &self.settings.name, self.ring_capacity()).await?;
        let fence = lease.renew(pool).await?;
        tracing::info!(chain = %self.settings.name, token = lease.token, heads = ring.len(), "following the chain");
        let now = Instant::now();
        let mut held = Held {
            lease,
            ring,
            final_block: None,
            halted: false,
            asof: None,
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
        held.note(fence);
        Ok(Some(held))
    }

    /// Proves the lease when nothing else did for a while.
    pub(super) async fn keep(&self, held: &mut Held) -> Result<(), LoopError> {
        if held.proven_at.elapsed() >= held.lease.ttl() / 3 {
            let fence = held.lease.renew(&self.parts.pool).await?;
            held.note(fence);
        }
        Ok(())
    }

    /// Asks the nodes something that may take longer than the lease, which is proven meanwhile. Otherwise nodes that are slow
    /// would cost the lease each time, and whoever takes over would begin again and come no further.
    pub(super) async fn while_asking<T>(
        &self,
        held: &mut Held,
        asked: impl Future<Output = T>,
    ) -> Result<T, LoopError> {
        let mut asked = std::pin::pin!(asked);
        let pace = held.lease.ttl() / 3;
        loop {
            match tokio::time::timeout(pace, &mut asked).await {
                Ok(answer) => return Ok(answer),
                Err(_) => self.keep(held).await?,
            }
        }
    }

    async fn tell_nodes(&self, held: &mut Held) -> Result<(), LoopError> {
        let nodes: Vec<NodeStanding> = self.edge.nodes().into_iter().map(standing).collect();
        let problems =
            |nodes: &[NodeStanding]| nodes.iter().map(|node| node.problem.clone()).collect::<Vec<_>>();
        let due = held.nodes_at.is_none_or(|at| at.elapsed() >= NODES_EVERY);
        if nodes == held.nodes || !(due || problems(&nodes) != problems(&held.nodes)) {
            return Ok(());
        }
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        heads::repo::save_nodes_in(&mut tx, &self.settings.name, &nodes).await?;
        tx.commit().await?;
        held.note(fence);
        (held.nodes, held.nodes_at) = (nodes, Some(Instant::now()));
        Ok(())
    }
}

/// Hints about more jobs than this are not kept: forgetting one costs a few questions.
const MOST_HINTS: usize = 10_000;

impl Held {
    /// Drops hints about jobs that are asked about no more: known for certain when `is_all` of them were listed.
    pub(super) fn forget_hints(&mut self, is_listed: impl Fn(&JobId) -> bool, is_all: bool) {
        if is_all {
            self.lookback.retain(|job, _| is_listed(job));
            self.doubted.retain(|job| is_listed(job));
        } else if self.lookback.len() + self.doubted.len() > MOST_HINTS {
            self.lookback.clear();
            self.doubted.clear();
        }
    }

    /// Takes over what a proof of the lease found.
    pub(super) fn note(&mut self, fence: Fence) {
        self.final_block = fence.final_block;
        self.halted = fence.halted_reason.is_some();
        self.proven_at = Instant::now();
    }
}

fn standing(node: chain::NodeHealth) -> NodeStanding {
    let problem = match (&node.wrong_chain, &node.last_error, node.went_back) {
        (Some(found), ..) => format!("belongs to chain {found}"),
        (None, Some(error), _) if node.failures > 0 => error.to_string(),
        (None, _, true) => "reports a lower head than before".to_owned(),
        (None, ..) => String::new(),
    };
    NodeStanding {
        node: node.name.to_string(),
        number: node.head.map_or(0, |head| head.number),
        hash: node.head.map(|head| head.hash),
        problem,
    }
}
