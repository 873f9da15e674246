//! Taking nonces: the attempt, its nonce and what it may cost become durable together, before anybody is asked to sign.
//!
//! Where it could hurt, and what holds:
//! - A crash right after the commit: the attempt is there, unsigned; whoever claims the job next resumes it.
//! - Two workers with jobs of one wallet: the lane's row is locked while nonces are taken.
//! - A worker whose lease ran out: its jobs are not among those the guard returns, and get nothing.
//! - A job cancelled in the same moment: its row is locked and looked at again under the lock.
//! - A node that counts wrongly, or alone: what may be believed of its word is `chain::lane`'s to say.

use std::collections::{BTreeMap, HashSet};

use db::Lease;
use sqlx::PgConnection;
use types::{Address, AttemptId, RawAmount};
use uuid::Uuid;

use super::WorkError;
use super::batch::{Bench, Ended, Item, Work};
use super::price::{Priced, WalletView};
use crate::job::{Attempt, AttemptKind, AttemptStatus, Event, Fee, Window};
use crate::lane::repo::{self as lanes, Taken};
use crate::sql::bigint;

/// What became of priced jobs.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub work: Vec<Work>,
    pub ended: Vec<Ended>,
    /// The wallet has as much in flight as it may: back to the queue for a moment, without a word to anybody.
    pub crowded: Vec<Item>,
}

impl Bench {
    /// Takes nonces for payments, one transaction for each wallet. `views` is what the chain said of the wallets.
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
                    let blocked = |one: Priced| (one.item, Event::Blocked { reason: reason.clone() });
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
        let mut ours = self.held_in(&mut tx, &leases).await?;
        ours = still_wanted_in(&mut tx, &ours).await?;
        let priced = priced.into_iter().filter(|one| ours.contains(&one.item.lease.job_id));
        let mut result = Reserved::default();
        let Some(mut state) = lanes::lock_in(&mut tx, chain, &address, &view.sight).await? else {
            let blocked = |one: Priced| (one.item, Event::Blocked { reason: unanchored(&address) });
            result.ended.extend(priced.map(blocked));
            return Ok(result);
        };
        let mut free = view.balance.saturating_sub(state.committed);
        let mut taken: Vec<Taken> = Vec::new();
        for Priced { item, fee, cost } in priced {
            if let Some(reason) = &state.halted_reason {
                let reason = format!("the lane of {address} is halted: {reason}");
                result.ended.push((item, Event::Blocked { reason }));
                continue;
            }
            if state.unmined + taken.len() as u64 >= self.config.max_unmined {
                result.crowded.push(item);
                continue;
            }
            let Some(left) = free.checked_sub(cost) else {
                tracing::info!(%chain, %address, %cost, %free, job_id = %item.job.id, "the wallet lacks coin for the fee");
                result.ended.push((item, Event::Blocked { reason: short_of(&address) }));
                continue;
            };
            let nonce = match state.lane.take() {
                Ok(nonce) => nonce,
                Err(blocked) => {
                    result.ended.push((item, Event::Blocked { reason: blocked.to_string() }));
                    continue;
                }
            };
            free = left;
            taken.push(Taken { nonce, job: item.job.id, committed: cost });
            let mut attempt = new_attempt(&item, AttemptKind::Pay, address, nonce, fee);
            attempt.window = view.window.map(|window| window_at(window, nonce));
            attempt.reference_block = view.head;
            result.work.push(Work { item, attempt });
        }
        if !taken.is_empty() {
            let written = lanes::take_in(&mut tx, chain, &address, state.lane.next, &taken).await?;
            if written != taken.len() as u64 {
                // A row stood where the lane saw none. Nothing is written; the next look sees it.
                return Err(crate::job::JobError::Conflict.into());
            }
            insert_in(&mut tx, &result.work, view.head).await?;
        }
        tx.commit().await?;
        crate::metrics::step(chain, "reserve", "taken", result.work.len());
        Ok(result)
    }

    /// Another attempt at the nonce a job holds already: a bump or a cancellation. None when the job is no longer ours.
    pub(super) async fn reserve_again(
        &self,
        item: Item,
        kind: AttemptKind,
        fee: Fee,
        cost: RawAmount,
    ) -> Result<Option<Work>, WorkError> {
        let (Some(nonce), Some(payer)) = (item.job.nonce, item.job.payer.clone()) else { return Ok(None) };
        let mut tx = db::begin(&self.pool).await?;
        let held = self.held_in(&mut tx, std::slice::from_ref(&item.lease)).await?;
        if !held.contains(&item.lease.job_id) {
            return Ok(None);
        }
        let job = crate::job::repo::lock_in(&mut tx, item.job.id).await?;
        if job.nonce != Some(nonce)
            || job.state != item.job.state
            || job.cancel_reason != item.job.cancel_reason
        {
            return Ok(None);
        }
        // One that was begun and whose bytes never came here: the same nonce gets a cancellation instead.
        sqlx::query(
            "UPDATE attempts SET status = 'void', last_error = 'given up before its bytes were stored'
             WHERE job_id = $1 AND status = 'reserved'",
        )
        .bind(item.job.id.as_uuid())
        .execute(&mut *tx)
        .await?;
        let attempt = new_attempt(&item, kind, payer.address, nonce, fee);
        lanes::recommit_in(&mut tx, item.job.id, cost).await?;
        let work = Work { item, attempt };
        insert_in(&mut tx, std::slice::from_ref(&work), 0).await?;
        tx.commit().await?;
        Ok(Some(work))
    }
}

/// Told once, not at every look: so without the numbers, which change.
fn short_of(address: &Address) -> String {
    format!("wallet {address} has too little of the chain's own coin for amount and fee")
}

fn unanchored(address: &Address) -> String {
    format!("too few nodes answer to say where the nonces of {address} begin")
}

/// The window of an attempt by its place in the line: two equal payments within one block must not be the same transaction, so
/// each carries a time of its own. More places than this are never open at once.
fn window_at(window: Window, place: u64) -> Window {
    const TIMES: u64 = 1 << 20;
    Window { made_ms: window.made_ms.saturating_sub(place % TIMES).max(1), ..window }
}

fn new_attempt(item: &Item, kind: AttemptKind, address: Address, nonce: u64, fee: Fee) -> Attempt {
    Attempt {
        id: AttemptId::new(),
        job: item.job.id,
        number: item.attempts.last().map_or(1, |last| last.number + 1),
        kind,
        status: AttemptStatus::Reserved,
        address,
        nonce: Some(nonce),
        window: None,
        reference_block: 0,
        fee: Some(fee),
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

/// Locks the jobs and returns those that are still to be paid: nobody cancelled them meanwhile.
async fn still_wanted_in(tx: &mut PgConnection, held: &HashSet<Uuid>) -> Result<HashSet<Uuid>, WorkError> {
    let ids: Vec<Uuid> = held.iter().copied().collect();
    let wanted: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM jobs WHERE id = ANY ($1) AND status = 'processing' AND wanted IS NULL AND cancel_reason IS NULL
         ORDER BY id FOR UPDATE",
    )
    .bind(ids)
    .fetch_all(tx)
    .await?;
    Ok(wanted.into_iter().collect())
}

/// One column of the attempts' windows; nothing where there is none.
fn windows<T>(work: &[Work], column: impl Fn(&Window) -> T) -> Vec<Option<T>> {
    work.iter().map(|work| work.attempt.window.as_ref().map(&column)).collect()
}

async fn insert_in(tx: &mut PgConnection, work: &[Work], reference_block: u64) -> Result<(), WorkError> {
    let attempts = || work.iter().map(|work| &work.attempt);
    let fee = |attempt: &Attempt| attempt.fee.map(|fee| fee.max_fee_per_gas.to_string());
    let tip = |attempt: &Attempt| {
        attempt.fee.and_then(|fee| fee.max_priority_fee_per_gas).map(|tip| tip.to_string())
    };
    let mut proofs = Vec::with_capacity(work.len());
    for attempt in attempts() {
        let proof = attempt.void_proof.as_ref().map(serde_json::to_value).transpose();
        proofs.push(proof.map_err(crate::job::JobError::from)?);
    }
    let chain = work.first().map(|work| work.item.job.chain.to_string());
    sqlx::query(include_str!("../../queries/insert_attempts.sql"))
        .bind(attempts().map(|attempt| attempt.id.as_uuid()).collect::<Vec<_>>())
        .bind(attempts().map(|attempt| attempt.job.as_uuid()).collect::<Vec<Uuid>>())
        .bind(attempts().map(|attempt| i32::try_from(attempt.number).unwrap_or(-1)).collect::<Vec<_>>())
        .bind(attempts().map(|attempt| attempt.kind.as_str()).collect::<Vec<_>>())
        .bind(attempts().map(|attempt| attempt.address.to_string()).collect::<Vec<_>>())
        .bind(attempts().map(|attempt| attempt.nonce.map(bigint)).collect::<Vec<_>>())
        .bind(attempts().map(|attempt| attempt.fee.map(|fee| bigint(fee.gas_limit))).collect::<Vec<_>>())
        .bind(attempts().map(fee).collect::<Vec<_>>())
        .bind(attempts().map(tip).collect::<Vec<_>>())
        .bind(proofs)
        .bind(chain)
        .bind(bigint(reference_block))
        .bind(windows(work, |window| window.reference.hash.as_bytes().to_vec()))
        .bind(windows(work, |window| bigint(window.expiration_ms)))
        .bind(windows(work, |window| bigint(window.made_ms)))
        .execute(tx)
        .await?;
    Ok(())
}
