//! One chain: holds its lease and runs one tick after the other.
//!
//! Owns the order of a tick: heads first, so that everything after it is judged against the canonical chain as it is known
//! now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chain::{ChainEdge, HeadRing};
use sqlx::PgPool;

use super::leased::{FencedTx, Leased};
use crate::chains::Settings;
use crate::config::Follow;
use crate::error::Error;
use crate::heads::{self, Lease, NodeStatus};
use crate::verdict::{AttestationKey, Evidence, record};

/// How often the nodes' heads are stored while nothing is wrong with them.
const NODES_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct LoopContext {
    pub pool: PgPool,
    pub key: AttestationKey,
    pub follow: Follow,
    /// Shown with the lease.
    pub owner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickOutcome {
    /// Another replica follows this chain.
    NotOurs,
    /// Everything known was looked at.
    Idle,
    /// There is more to do at once.
    Busy,
}

#[derive(Debug)]
pub struct ChainLoop {
    pub(super) context: LoopContext,
    pub(super) settings: Settings,
    pub(super) edge: Arc<dyn ChainEdge>,
    leased: Option<Leased>,
    /// Kept beside `leased`, because a tick that is dropped half-way takes that with it and the lease must still be released.
    lease: Option<Lease>,
}

impl ChainLoop {
    pub fn new(context: LoopContext, settings: Settings, edge: Arc<dyn ChainEdge>) -> Self {
        let chain = settings.name.to_string();
        // The counters exist from the start, because otherwise the first disagreement would not show as an increase.
        metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain.clone()).increment(0);
        metrics::counter!("bursar_confirmation_loop_errors_total", "chain" => chain).increment(0);
        Self { context, settings, edge, leased: None, lease: None }
    }

    /// Takes over new settings and the edge made from them. What is known of the chain stays.
    pub fn replace(&mut self, settings: Settings, edge: Arc<dyn ChainEdge>) {
        (self.settings, self.edge) = (settings, edge);
        let capacity = self.ring_capacity();
        if let Some(leased) = &mut self.leased {
            // A greater depth needs a longer ring.
            leased.ring = HeadRing::restore(capacity, leased.ring.iter().copied());
            leased.as_of = None;
            leased.settle_at = Instant::now();
        }
    }

    /// Looks once at everything that may have changed. It takes no input, is bounded, and may be repeated at any time.
    pub async fn tick(&mut self) -> Result<TickOutcome, Error> {
        let Some(mut leased) = self.take_lease().await? else { return Ok(TickOutcome::NotOurs) };
        let outcome = self.tick_leased(&mut leased).await;
        if !matches!(outcome, Err(Error::LeaseLost { .. })) {
            self.leased = Some(leased);
        }
        outcome
    }

    async fn tick_leased(&self, leased: &mut Leased) -> Result<TickOutcome, Error> {
        let followed = self.follow(leased).await;
        // The nodes are stored even when none could be reached, because that is when operators look.
        self.store_nodes(leased).await?;
        let followed = followed?;
        let mut busy = !followed.caught_up;
        busy |= self.look_up(leased).await?;
        self.keep_lease(leased).await?;
        if followed.moved || leased.settle_at <= Instant::now() {
            self.settle(leased).await?;
        }
        if leased.void_at <= Instant::now() {
            self.check_void(leased).await?;
        }
        self.keep_lease(leased).await?;
        Ok(if busy { TickOutcome::Busy } else { TickOutcome::Idle })
    }

    /// The ring must reach below the depth. Otherwise a reorganisation of final blocks could not be told from a usual one.
    pub(super) fn ring_capacity(&self) -> usize {
        let depth = usize::try_from(self.settings.depth).unwrap_or(usize::MAX);
        self.context.follow.ring_blocks.max(depth.saturating_mul(2))
    }

    /// Releases the lease, so that another replica takes over at once.
    pub async fn release(&mut self) -> Result<(), Error> {
        self.leased = None;
        match self.lease.take() {
            Some(lease) => lease.release(&self.context.pool).await,
            None => Ok(()),
        }
    }

    async fn take_lease(&mut self) -> Result<Option<Leased>, Error> {
        if let Some(leased) = self.leased.take() {
            return Ok(Some(leased));
        }
        let LoopContext { pool, follow, owner, .. } = &self.context;
        let chain = &self.settings.name;
        let Some(lease) = Lease::acquire(pool, chain, owner, follow.lease).await? else {
            return Ok(None);
        };
        self.lease = Some(lease.clone());
        let ring = heads::repo::load_ring(pool, chain, self.ring_capacity()).await?;
        let fence = lease.renew(pool).await?;
        tracing::info!(%chain, token = lease.token, heads = ring.len(), "following the chain");
        Ok(Some(Leased::new(lease, ring, fence)))
    }

    /// Proves the lease when nothing else did for a while.
    pub(super) async fn keep_lease(&self, leased: &mut Leased) -> Result<(), Error> {
        if leased.proven_at.elapsed() >= leased.lease.ttl() / 3 {
            let fence = leased.lease.renew(&self.context.pool).await?;
            leased.note(fence);
        }
        Ok(())
    }

    /// Queries nodes, which may take longer than the lease, and proves the lease meanwhile. Otherwise slow nodes would cost
    /// the lease each time, and the next holder would begin again and get no further.
    pub(super) async fn query<T>(
        &self,
        leased: &mut Leased,
        query: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let mut query = std::pin::pin!(query);
        let pace = leased.lease.ttl() / 3;
        loop {
            match tokio::time::timeout(pace, &mut query).await {
                Ok(answer) => return Ok(answer),
                Err(_) => self.keep_lease(leased).await?,
            }
        }
    }

    /// Begins a transaction that proves the lease.
    pub(super) async fn begin(&self, leased: &Leased) -> Result<FencedTx, Error> {
        let mut tx = db::begin(&self.context.pool).await?;
        let fence = leased.lease.fence_in(&mut tx).await?;
        Ok(FencedTx { tx, fence })
    }

    pub(super) async fn record_in(
        &self,
        tx: &mut FencedTx,
        evidence: Vec<Evidence>,
    ) -> Result<Vec<&'static str>, Error> {
        let now = tx.now();
        record::record_in(tx.connection(), &self.context.key, now, evidence).await
    }

    async fn store_nodes(&self, leased: &mut Leased) -> Result<(), Error> {
        let nodes: Vec<NodeStatus> = self.edge.nodes().into_iter().map(node_status).collect();
        let problems =
            |nodes: &[NodeStatus]| nodes.iter().map(|node| node.problem.clone()).collect::<Vec<_>>();
        let due = leased.nodes_at.is_none_or(|at| at.elapsed() >= NODES_EVERY);
        if nodes == leased.nodes || !(due || problems(&nodes) != problems(&leased.nodes)) {
            return Ok(());
        }
        let mut tx = self.begin(leased).await?;
        heads::repo::save_nodes_in(tx.connection(), &self.settings.name, &nodes).await?;
        tx.commit(leased).await?;
        (leased.nodes, leased.nodes_at) = (nodes, Some(Instant::now()));
        Ok(())
    }
}

fn node_status(node: chain::NodeHealth) -> NodeStatus {
    let problem = match (&node.wrong_chain, &node.last_error, node.went_back) {
        (Some(found), ..) => format!("belongs to chain {found}"),
        (None, Some(error), _) if node.failures > 0 => error.to_string(),
        (None, _, true) => "reports a lower head than before".to_owned(),
        (None, ..) => String::new(),
    };
    NodeStatus {
        node: node.name.to_string(),
        number: node.head.map_or(0, |head| head.number),
        hash: node.head.map(|head| head.hash),
        problem,
    }
}
