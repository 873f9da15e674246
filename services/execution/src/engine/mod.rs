//! The engine of every queue: a worker claims a batch of jobs of one queue and chain and takes each as far as it goes through
//! the write-ahead protocol.
//!
//! ```text
//! claim       lease + `processing`                      crash: the lease expires, another worker claims
//! plan        what the rows say comes next              (pure)
//! price       fee and gas; no binding taken yet         crash: nothing happened
//! reserve     attempt + nonce or window, fenced         crash: resumed from the attempt
//! sign        idempotent on job/attempt                 crash, lost reply: the same request again
//! persist     bytes + hash, watch, fenced               crash: the same bytes are sent
//! broadcast   to every node                             crash, lost reply: the same bytes again
//! confirm     `confirming`, lease ended, fenced         crash: the same bytes again, then this
//! ```
//!
//! What a queue does its own way is its `QueueKind` (`queue`); nothing here knows which queue it is.
//!
//! Invariant: between any two of these lines the process may die, and nothing is paid twice or forgotten.

mod context;
mod plan;
mod price;
pub(crate) mod reject;
mod reserve;
pub(crate) mod send;
mod sign;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use db::queue::NewJob;
use db::{Due, Lease};
use types::{Address, ChainName};
use worker::{Checkpoints, Tick, TickOutcome};

use self::context::{Ended, Item, Work, WorkContext};
use self::plan::{Next, plan};
use crate::chains::Chains;
use crate::job::{Attempt, Jobs, State, WorkEvent};
use crate::queue::{JobQueue, QueueKind};
use crate::signer::Signer;
use crate::worker::{WorkError, WorkerConfig};

/// After so many workers died over a job, it is no longer worked on together with all the others.
const SUSPECT_AFTER: u32 = 3;
/// The pause of jobs whose wallet has as many transactions in flight as it may.
const CROWDED_PAUSE: Duration = Duration::from_millis(500);

/// The connections of a worker to the rest of the service.
#[derive(Debug, Clone)]
pub struct Edges {
    pub chains: Chains,
    pub jobs: Jobs,
    pub signer: Signer,
}

/// One loop over one queue of one chain.
#[derive(Debug)]
pub struct QueueWorker {
    chain: ChainName,
    owner: String,
    edges: Edges,
    config: Arc<WorkerConfig>,
    queue: db::Queue,
    kind: &'static dyn QueueKind,
    checkpoints: Checkpoints,
}

impl QueueWorker {
    /// None for a queue that no worker serves.
    pub fn new(
        queue: JobQueue,
        chain: ChainName,
        owner: impl Into<String>,
        edges: Edges,
        config: Arc<WorkerConfig>,
    ) -> Option<Self> {
        let kind = queue.kind()?;
        let (queue, checkpoints) = (queue.on(&chain), Checkpoints::default());
        Some(Self { chain, owner: owner.into(), edges, config, queue, kind, checkpoints })
    }

    /// Where a test may stop it.
    #[must_use]
    pub fn with_checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = checkpoints;
        self
    }

    async fn context(&self) -> Result<Option<WorkContext>, WorkError> {
        let Some(chain) = self.edges.chains.get(&self.chain).await? else { return Ok(None) };
        Ok(Some(WorkContext {
            pool: self.edges.jobs.hot().clone(),
            queue: self.queue.clone(),
            kind: self.kind,
            chain,
            signer: self.edges.signer.clone(),
            config: Arc::clone(&self.config),
            checkpoints: self.checkpoints.clone(),
        }))
    }

    async fn run(&self, context: &WorkContext, items: Vec<Item>) -> Result<(), WorkError> {
        let mut plans = Plans::default();
        for item in items {
            plans.place(item, self.config.max_lapses);
        }
        context.complete(&plans.nothing).await?;
        let mut ended = std::mem::take(&mut plans.ended);
        let assigned = self.assign(context, std::mem::take(&mut plans.assign), &mut ended).await?;
        plans.pay.extend(assigned);
        let mut work = std::mem::take(&mut plans.resume);
        match self.edges.signer.ready().await {
            Ok(()) => {
                work.extend(self.reserve(context, plans.pay, &mut ended).await?);
                work.extend(self.replace(context, plans.replace, &mut ended).await?);
            }
            Err(reason) => {
                let waiting = plans
                    .pay
                    .into_iter()
                    .chain(plans.replace.into_iter().map(|replacement| replacement.item));
                let waiting = waiting.chain(work.drain(..).map(|work| work.item));
                ended.extend(waiting.map(|item| (item, WorkEvent::Blocked { reason: reason.clone() })));
            }
        }
        context.checkpoints.pass("execution.after_reserve").await;
        let (signed, refused) = context.sign(work).await?;
        ended.extend(refused);
        let mut to_send = plans.send;
        to_send.extend(signed);
        context.send(to_send).await?;
        context.end(ended).await
    }

    /// Gives wallets to jobs that have none. Those that still get none wait, with the reason.
    async fn assign(
        &self,
        context: &WorkContext,
        items: Vec<Item>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Item>, WorkError> {
        if items.is_empty() {
            return Ok(items);
        }
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        let reasons = self.edges.jobs.assign(&self.chain, (&context.queue, context.kind), &leases).await?;
        let (waiting, found): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| reasons.contains_key(&item.job.id));
        ended.extend(waiting.into_iter().map(|item| {
            let reason = reasons.get(&item.job.id).cloned().unwrap_or_default();
            (item, WorkEvent::Blocked { reason })
        }));
        Ok(context.reload(found).await?.into_iter().filter(|item| item.job.payer.is_some()).collect())
    }

    /// Prices payments and takes their bindings.
    async fn reserve(
        &self,
        context: &WorkContext,
        items: Vec<Item>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Work>, WorkError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let payers: BTreeSet<Address> =
            items.iter().filter_map(|item| item.job.payer.as_ref()).map(|payer| payer.address).collect();
        // At the same time, because each takes as long as a node's answers.
        let ((priced, unpriced), views) =
            futures::join!(context.price(items), context.look_at(payers.into_iter().collect()));
        ended.extend(unpriced);
        if priced.is_empty() {
            return Ok(Vec::new());
        }
        let reserved = context.reserve(priced, &views).await?;
        ended.extend(reserved.ended);
        self.pause(context, &reserved.crowded).await?;
        Ok(reserved.work)
    }

    /// Further attempts at nonces already held.
    async fn replace(
        &self,
        context: &WorkContext,
        replacements: Vec<Replacement>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Work>, WorkError> {
        let mut work = Vec::new();
        for Replacement { item, cancels, previous } in replacements {
            let action = if cancels { item.job.cancellation() } else { item.job.action() };
            let Some(action) = action else { continue };
            if let Some(event) = self.needless(context, &item).await {
                ended.push((item, event));
                continue;
            }
            match context.reprice(&item, &action, previous.as_ref()).await {
                Ok(priced) => work.extend(context.reserve_replacement(item, action, priced).await?),
                Err(event) => ended.push((item, event)),
            }
        }
        Ok(work)
    }

    /// A job that is being confirmed and whose nonce a block already holds needs no higher fee: the verdict will say what landed.
    async fn needless(&self, context: &WorkContext, item: &Item) -> Option<WorkEvent> {
        let (payer, nonce) = (item.job.payer.as_ref()?, item.job.nonce?);
        let State::Confirming { .. } = item.job.state else { return None };
        let views = context.look_at(vec![payer.address]).await;
        match views.into_values().next()? {
            Ok(view) if nonce < view.mined => Some(WorkEvent::Sent),
            Ok(_) => None,
            Err(reason) => Some(WorkEvent::Blocked { reason }),
        }
    }

    /// One job that kills its worker takes down the whole batch each time. Of the jobs that workers died over, half are worked on,
    /// alone; all others go back to the queue with a clean record. After a few rounds the one is left by itself, and only it is
    /// parked.
    async fn quarantine(&self, context: &WorkContext, items: Vec<Item>) -> Result<Vec<Item>, WorkError> {
        let (mut suspects, others): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| item.lease.lapses >= SUSPECT_AFTER);
        if suspects.is_empty() || (suspects.len() == 1 && others.is_empty()) {
            return Ok(if suspects.is_empty() { others } else { suspects });
        }
        let aside = suspects.split_off(suspects.len().div_ceil(2));
        let aside: Vec<Lease> = aside.into_iter().chain(others).map(|item| item.lease).collect();
        tracing::warn!(
            chain = %self.chain, suspects = suspects.len(), aside = aside.len(),
            "workers died over some of these jobs; they are worked on apart from the others"
        );
        context.give_back(&aside).await?;
        Ok(suspects)
    }

    /// Returns jobs to the queue for a moment. They stay `processing`: they wait for a place in the pool.
    async fn pause(&self, context: &WorkContext, items: &[Item]) -> Result<(), WorkError> {
        if items.is_empty() {
            return Ok(());
        }
        let again: Vec<NewJob> = items
            .iter()
            .map(|item| NewJob {
                job_id: item.lease.job_id,
                priority: item.job.priority,
                due: Due::In(CROWDED_PAUSE),
            })
            .collect();
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        let mut tx = db::begin(&context.pool).await?;
        context.queue.complete_many_in(&mut tx, &leases).await?;
        context.queue.push_many_in(&mut tx, &again).await?;
        tx.commit().await?;
        Ok(())
    }
}

impl Tick for QueueWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let Some(context) = self.context().await? else { return Ok(TickOutcome::Idle { next: None }) };
        let items = context.claim(&self.owner).await?;
        if items.is_empty() {
            return Ok(TickOutcome::Idle { next: self.queue.next_due(&context.pool).await? });
        }
        let items = self.quarantine(&context, items).await?;
        context.checkpoints.pass("execution.after_claim").await;
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        let _renewal = context.renew(leases.clone());
        let outcome = self.run(&context, items).await;
        // Whatever a step or an error left behind is looked at again soon instead of when its lease ends.
        let returned = context.give_back(&leases).await;
        outcome.and(returned)?;
        Ok(TickOutcome::Worked)
    }
}

/// A further attempt at a nonce already held: a bump, or a cancellation.
struct Replacement {
    item: Item,
    cancels: bool,
    previous: Option<Attempt>,
}

/// A batch, sorted by what comes next.
#[derive(Default)]
struct Plans {
    nothing: Vec<Item>,
    assign: Vec<Item>,
    pay: Vec<Item>,
    resume: Vec<Work>,
    replace: Vec<Replacement>,
    send: Vec<Work>,
    ended: Vec<Ended>,
}

impl Plans {
    fn place(&mut self, item: Item, max_lapses: u32) {
        if item.lease.lapses >= max_lapses {
            let reason = format!("{} workers died over it", item.lease.lapses);
            self.ended.push((item, WorkEvent::Inexplicable { reason }));
            return;
        }
        match plan(&item.job, &item.attempts) {
            Next::Nothing => self.nothing.push(item),
            Next::Assign => self.assign.push(item),
            Next::Pay => self.pay.push(item),
            Next::Resume(attempt) => self.resume.push(Work::new(item, attempt)),
            Next::Send(attempt) => self.send.push(Work::new(item, attempt)),
            Next::Bump(previous) => {
                self.replace.push(Replacement { item, cancels: false, previous: Some(previous) });
            }
            Next::Cancel(previous) => self.replace.push(Replacement { item, cancels: true, previous }),
            Next::End(event) => self.ended.push((item, event)),
        }
    }
}
