//! The worker of a chain's withdrawal queue: claims a batch and takes each job as far as it goes, through the write-ahead
//! protocol.
//!
//! ```text
//! claim       lease + `processing`                      crash: the lease runs out, somebody else claims
//! plan        what the rows say comes next              (pure)
//! price       fee and gas; no nonce taken yet           crash: nothing happened
//! reserve     attempt + nonce, fenced                   crash: resumed from the attempt
//! sign        idempotent on job/attempt                 crash, lost reply: the same request again
//! persist     bytes + hash, watch, fenced               crash: the same bytes are sent
//! broadcast   to every node                             crash, lost reply: the same bytes again
//! confirm     `confirming`, lease ended, fenced         crash: the same bytes again, then this
//! ```
//!
//! Invariant: between any two of these lines the process may die, and nothing is paid twice or forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use db::queue::NewJob;
use db::{Due, Lease};
use types::Address;
use worker::{Checkpoints, Tick, TickOutcome};

use super::WorkError;
use super::WorkerConfig;
use super::batch::{Bench, Ended, Item, Work};
use super::plan::{Next, plan};
use crate::chains::Chains;
use crate::job::{Attempt, AttemptKind, Event, JobQueue, Jobs};
use crate::signer::Signer;

/// After so many workers died over a job, it is no longer worked on together with all the others.
const SUSPECT_AFTER: u32 = 3;
/// How long jobs of a crowded wallet rest.
const CROWDED_PAUSE: Duration = Duration::from_millis(500);

/// One loop over one chain's withdrawals.
#[derive(Debug)]
pub struct WithdrawalWorker {
    chain: types::ChainName,
    owner: String,
    chains: Chains,
    jobs: Jobs,
    signer: Signer,
    config: Arc<WorkerConfig>,
    queue: db::Queue,
    checkpoints: Checkpoints,
}

impl WithdrawalWorker {
    pub fn new(
        chain: types::ChainName,
        owner: impl Into<String>,
        (chains, jobs, signer): (Chains, Jobs, Signer),
        config: Arc<WorkerConfig>,
    ) -> Self {
        let queue = JobQueue::Withdrawal.on(&chain);
        Self {
            chain,
            owner: owner.into(),
            chains,
            jobs,
            signer,
            config,
            queue,
            checkpoints: Checkpoints::default(),
        }
    }

    /// Where a test may stop it.
    #[must_use]
    pub fn with_checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = checkpoints;
        self
    }

    async fn bench(&self) -> Result<Option<Bench>, WorkError> {
        let Some(chain) = self.chains.get(&self.chain).await? else { return Ok(None) };
        Ok(Some(Bench {
            pool: self.jobs.hot().clone(),
            queue: self.queue.clone(),
            chain,
            signer: self.signer.clone(),
            config: Arc::clone(&self.config),
            checkpoints: self.checkpoints.clone(),
        }))
    }

    async fn run(&self, bench: &Bench, items: Vec<Item>) -> Result<(), WorkError> {
        let mut plans = Plans::default();
        for item in items {
            plans.place(item, self.config.max_lapses);
        }
        bench.done(&plans.nothing).await?;
        let mut ended = std::mem::take(&mut plans.ended);
        let assigned = self.assign(bench, std::mem::take(&mut plans.assign), &mut ended).await?;
        plans.pay.extend(assigned);
        let mut work = std::mem::take(&mut plans.resume);
        match self.signer.ready().await {
            Ok(()) => {
                work.extend(self.number(bench, plans.pay, &mut ended).await?);
                work.extend(self.renumber(bench, plans.again, &mut ended).await?);
            }
            Err(reason) => {
                let waiting = plans.pay.into_iter().chain(plans.again.into_iter().map(|again| again.item));
                let waiting = waiting.chain(work.drain(..).map(|work| work.item));
                ended.extend(waiting.map(|item| (item, Event::Blocked { reason: reason.clone() })));
            }
        }
        bench.checkpoints.pass("execution.after_reserve").await;
        let (signed, refused) = bench.sign(work).await?;
        ended.extend(refused);
        let mut to_send = plans.send;
        to_send.extend(signed);
        bench.send(to_send).await?;
        bench.end(ended).await
    }

    /// Wallets for jobs that have none. Those that still get none say so themselves.
    async fn assign(
        &self,
        bench: &Bench,
        items: Vec<Item>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Item>, WorkError> {
        if items.is_empty() {
            return Ok(items);
        }
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        let reasons = self.jobs.assign(&self.chain, &bench.queue, &leases).await?;
        let (waiting, found): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| reasons.contains_key(&item.job.id));
        ended.extend(waiting.into_iter().map(|item| {
            let reason = reasons.get(&item.job.id).cloned().unwrap_or_default();
            (item, Event::Blocked { reason })
        }));
        Ok(bench.reload(found).await?.into_iter().filter(|item| item.job.payer.is_some()).collect())
    }

    /// Prices payments and takes their nonces.
    async fn number(
        &self,
        bench: &Bench,
        items: Vec<Item>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Work>, WorkError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let payers: BTreeSet<Address> =
            items.iter().filter_map(|item| item.job.payer.as_ref()).map(|payer| payer.address).collect();
        // Side by side: neither needs the other, and each takes as long as a node's answers.
        let ((priced, unpriced), views) =
            futures::join!(bench.price(items), bench.look_at(payers.into_iter().collect()));
        ended.extend(unpriced);
        if priced.is_empty() {
            return Ok(Vec::new());
        }
        let reserved = bench.reserve(priced, &views).await?;
        ended.extend(reserved.ended);
        self.rest(bench, &reserved.crowded).await?;
        Ok(reserved.work)
    }

    /// Further attempts at nonces already held.
    async fn renumber(
        &self,
        bench: &Bench,
        again: Vec<Again>,
        ended: &mut Vec<Ended>,
    ) -> Result<Vec<Work>, WorkError> {
        let mut work = Vec::new();
        for Again { item, kind, previous } in again {
            let action = match kind {
                AttemptKind::Pay => item.job.pay(),
                AttemptKind::Cancel => item.job.cancel(),
            };
            let Some(action) = action else { continue };
            if let Some(event) = self.needless(bench, &item).await {
                ended.push((item, event));
                continue;
            }
            match bench.reprice(&item, &action, previous.as_ref()).await {
                Ok((fee, cost)) => work.extend(bench.reserve_again(item, kind, fee, cost).await?),
                Err(event) => ended.push((item, event)),
            }
        }
        Ok(work)
    }

    /// A watched job whose nonce a block already holds needs no higher fee: the verdict will say what landed.
    async fn needless(&self, bench: &Bench, item: &Item) -> Option<Event> {
        let (payer, nonce) = (item.job.payer.as_ref()?, item.job.nonce?);
        if item.job.state != crate::job::State::Confirming {
            return None;
        }
        let views = bench.look_at(vec![payer.address]).await;
        match views.into_values().next()? {
            Ok(view) if nonce < view.mined => Some(Event::Sent),
            Ok(_) => None,
            Err(reason) => Some(Event::Blocked { reason }),
        }
    }

    /// One job that kills its worker takes down the whole batch each time. Of those that workers died over, half are worked on,
    /// alone; everybody else goes back with a clean record. In a few rounds the one is left by itself, and only it is parked.
    async fn quarantine(&self, bench: &Bench, items: Vec<Item>) -> Result<Vec<Item>, WorkError> {
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
        bench.give_back(&aside).await?;
        Ok(suspects)
    }

    /// Puts jobs back for a moment. They stay `processing`, which is what they are: in line for a place in the pool.
    async fn rest(&self, bench: &Bench, items: &[Item]) -> Result<(), WorkError> {
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
        let mut tx = db::begin(&bench.pool).await?;
        bench.queue.complete_many_in(&mut tx, &leases).await?;
        bench.queue.push_many_in(&mut tx, &again).await?;
        tx.commit().await?;
        Ok(())
    }
}

impl Tick for WithdrawalWorker {
    type Error = WorkError;

    async fn tick(&mut self) -> Result<TickOutcome, WorkError> {
        let Some(bench) = self.bench().await? else { return Ok(TickOutcome::Idle { next: None }) };
        let items = bench.claim(&self.owner).await?;
        if items.is_empty() {
            return Ok(TickOutcome::Idle { next: self.queue.next_due(&bench.pool).await? });
        }
        let items = self.quarantine(&bench, items).await?;
        bench.checkpoints.pass("execution.after_claim").await;
        let leases: Vec<Lease> = items.iter().map(|item| item.lease.clone()).collect();
        let _alive = bench.keep_alive(leases.clone());
        let outcome = self.run(&bench, items).await;
        // Whatever a step left aside, or an error left behind, is looked at again soon instead of when its lease ends.
        let returned = bench.give_back(&leases).await;
        outcome.and(returned)?;
        Ok(TickOutcome::Worked)
    }
}

/// A further attempt to be made at a nonce already held.
struct Again {
    item: Item,
    kind: AttemptKind,
    previous: Option<Attempt>,
}

/// A batch, sorted by what comes next.
#[derive(Default)]
struct Plans {
    nothing: Vec<Item>,
    assign: Vec<Item>,
    pay: Vec<Item>,
    resume: Vec<Work>,
    again: Vec<Again>,
    send: Vec<Work>,
    ended: Vec<Ended>,
}

impl Plans {
    fn place(&mut self, item: Item, max_lapses: u32) {
        if item.lease.lapses >= max_lapses {
            let reason = format!("{} workers died over it", item.lease.lapses);
            self.ended.push((item, Event::Inexplicable { reason }));
            return;
        }
        match plan(&item.job, &item.attempts) {
            Next::Nothing => self.nothing.push(item),
            Next::Assign => self.assign.push(item),
            Next::Pay => self.pay.push(item),
            Next::Resume(attempt) => self.resume.push(Work { item, attempt }),
            Next::Send(attempt) => self.send.push(Work { item, attempt }),
            Next::Bump(previous) => {
                self.again.push(Again { item, kind: AttemptKind::Pay, previous: Some(previous) });
            }
            Next::Cancel(previous) => self.again.push(Again { item, kind: AttemptKind::Cancel, previous }),
            Next::End(event) => self.ended.push((item, event)),
        }
    }
}
