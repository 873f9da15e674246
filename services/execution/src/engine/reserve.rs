//! Taking bindings: the attempt, its nonce or window and what it may cost are stored together, before the signer is called.
//!
//! - A crash right after the commit: the attempt is there, unsigned; whoever claims the job next resumes it.
//! - Two workers with jobs of one wallet: the lane's row is locked while nonces are taken.
//! - A worker whose lease expired: its jobs are not among those the guard returns, and get nothing.
//! - A job cancelled in the same moment: its row is locked and read again under the lock.
//! - A node that counts wrongly, or alone: `chain::lane` decides how much of it is believed.

use std::collections::BTreeMap;

use db::Lease;
use payment::{Action, Binding, Price, Window};
use types::{Address, AttemptId};

use super::context::{Ended, Item, Work, WorkContext};
use super::price::{Offer, Priced, WalletView};
use crate::job::{Attempt, AttemptStatus, WorkEvent, repo};
use crate::lane::repo::{self as lanes, Taken};
use crate::worker::WorkError;

/// What became of priced jobs.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub work: Vec<Work>,
    pub ended: Vec<Ended>,
    /// The wallet has as much in flight as it may: they go back to the queue for a moment, and nobody is notified.
    pub crowded: Vec<Item>,
}

impl WorkContext {
    /// Takes bindings for payments, one transaction for each wallet. `views` is what the chain said of the wallets.
    pub(super) async fn reserve(
        &self,
        priced: Vec<Priced>,
        views: &BTreeMap<String, Result<WalletView, String>>,
    ) -> Result<Reserved, WorkError> {
        let mut by_wallet: BTreeMap<String, (Address, Vec<Priced>)> = BTreeMap::new();
        for one in priced {
            let Some(payer) = &one.item.job.payer else { continue };
            by_wallet.entry(payer.address.to_string()).or_insert((payer.address, Vec::new())).1.push(one);
        }
        let mut all = Reserved::default();
        let mut open = Vec::new();
        for (name, (address, priced)) in by_wallet {
            match views.get(&name) {
                Some(Ok(view)) => open.push((address, *view, priced)),
                Some(Err(reason)) => {
                    let blocked = |one: Priced| (one.item, WorkEvent::Blocked { reason: reason.clone() });
                    all.ended.extend(priced.into_iter().map(blocked));
                }
                None => {}
            }
        }
        let wallets =
            open.into_iter().map(|(address, view, priced)| self.reserve_wallet(address, view, priced));
        for reserved in futures::future::join_all(wallets).await {
            let reserved = reserved?;
            all.work.extend(reserved.work);
            all.ended.extend(reserved.ended);
            all.crowded.extend(reserved.crowded);
        }
        Ok(all)
    }

    async fn reserve_wallet(
        &self,
        address: Address,
        view: WalletView,
        priced: Vec<Priced>,
    ) -> Result<Reserved, WorkError> {
        let chain = &self.chain.settings.name;
        let mut tx = db::begin(&self.pool).await?;
        let leases: Vec<Lease> = priced.iter().map(|one| one.item.lease.clone()).collect();
        let held = self.held_in(&mut tx, &leases).await?;
        let ours = repo::changes::lock_payable_in(&mut tx, &held).await?;
        let priced = priced.into_iter().filter(|one| ours.contains(&one.item.lease.job_id));
        let mut result = Reserved::default();
        let Some(mut state) = lanes::lock_in(&mut tx, chain, &address, &view.sight).await? else {
            let blocked = |one: Priced| (one.item, WorkEvent::Blocked { reason: unanchored(&address) });
            result.ended.extend(priced.map(blocked));
            return Ok(result);
        };
        let mut free = view.balance.saturating_sub(state.committed);
        let mut taken: Vec<Taken> = Vec::new();
        for Priced { item, action, offer } in priced {
            let cost = offer.cost;
            if let Some(reason) = &state.halted_reason {
                let reason = format!("the lane of {address} is halted: {reason}");
                result.ended.push((item, WorkEvent::Blocked { reason }));
                continue;
            }
            if state.unmined + taken.len() as u64 >= self.config.max_unmined {
                result.crowded.push(item);
                continue;
            }
            let Some(left) = free.checked_sub(cost) else {
                tracing::info!(%chain, %address, %cost, %free, job_id = %item.job.id, "the wallet lacks coin for the fee");
                result.ended.push((item, WorkEvent::Blocked { reason: short_of(&address) }));
                continue;
            };
            let nonce = match state.lane.take() {
                Ok(nonce) => nonce,
                Err(blocked) => {
                    result.ended.push((item, WorkEvent::Blocked { reason: blocked.to_string() }));
                    continue;
                }
            };
            free = left;
            taken.push(Taken { nonce, job: item.job.id, committed: cost });
            let sender = address;
            let binding = match view.window {
                None => Binding::Nonce { sender, nonce },
                Some((_, window)) => Binding::Window { sender, window: window_at(window, nonce) },
            };
            let mut attempt = new_attempt(&item, action, (nonce, binding), offer.price);
            attempt.reference_block = view.head;
            result.work.push(Work::new(item, attempt));
        }
        if !taken.is_empty() {
            let written = lanes::take_in(&mut tx, chain, &address, state.lane.next, &taken).await?;
            if written != taken.len() as u64 {
                // There was a row where the lane saw none. Nothing is written; the next look sees it.
                return Err(crate::job::JobError::Conflict.into());
            }
            let attempts: Vec<&Attempt> = result.work.iter().map(|work| &work.attempt).collect();
            let reference = (view.head, view.window.map(|(block, _)| block.hash));
            repo::attempts::insert_in(&mut tx, chain, &attempts, Some(reference)).await?;
        }
        tx.commit().await?;
        crate::metrics::step(chain, "reserve", "taken", result.work.len());
        Ok(result)
    }

    /// Another attempt at the nonce that a job holds already: a bump or a cancellation. None when the job is no longer ours.
    pub(super) async fn reserve_replacement(
        &self,
        item: Item,
        action: Action,
        offer: Offer,
    ) -> Result<Option<Work>, WorkError> {
        let Some(nonce) = item.job.nonce else { return Ok(None) };
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, std::slice::from_ref(&item.lease)).await?;
        if !held.contains(&item.lease.job_id) {
            return Ok(None);
        }
        let job = repo::lock_in(&mut tx, item.job.id).await?;
        let (now, claimed) = (&job.state, &item.job.state);
        if job.nonce != Some(nonce) || now.status() != claimed.status() || now.closing() != claimed.closing()
        {
            return Ok(None);
        }
        repo::attempts::void_reserved_in(&mut tx, job.id).await?;
        let binding = Binding::Nonce { sender: action.sender(), nonce };
        let attempt = new_attempt(&item, action, (nonce, binding), offer.price);
        lanes::recommit_in(&mut tx, job.id, offer.cost).await?;
        repo::attempts::insert_in(&mut tx, &job.chain, &[&attempt], None).await?;
        tx.commit().await?;
        Ok(Some(Work::new(item, attempt)))
    }
}

/// Reported once, not at every look, so it is without the numbers, which change.
fn short_of(address: &Address) -> String {
    format!("wallet {address} has too little of the chain's own coin for amount and fee")
}

fn unanchored(address: &Address) -> String {
    format!("too few nodes answer to say where the nonces of {address} begin")
}

/// The window of an attempt by its place in the lane: two equal payments within one block must not be the same transaction, so
/// each carries a time of its own. More places than this are never open at once.
fn window_at(window: Window, place: u64) -> Window {
    const TIMES: u64 = 1 << 20;
    Window { made_ms: window.made_ms.saturating_sub(place % TIMES).max(1), ..window }
}

fn new_attempt(item: &Item, action: Action, (nonce, binding): (u64, Binding), price: Price) -> Attempt {
    Attempt {
        id: AttemptId::new(),
        job: item.job.id,
        number: item.attempts.last().map_or(1, |last| last.number + 1),
        action,
        status: AttemptStatus::Reserved,
        nonce: Some(nonce),
        binding: Some(binding),
        reference_block: 0,
        price: Some(price),
        void_proof: item.job.void_proof.clone(),
        raw: None,
        tx_hash: None,
        last_error: None,
        rejected: false,
        sends: 0,
        created_at: chrono::Utc::now(),
        broadcast_at: None,
        gas_used: None,
        gas_price: None,
        block_number: None,
    }
}
