//! Nonces and windows used up by something else: the positive evidence that nothing of a round can land.
//!
//! On chains with nonces only the lowest waiting nonce of each sender is asked about: while that is open, all above it
//! are. One that is used up in a way that decides nothing does not stand in the way of those above it. The answer must come from
//! every configured node. One that lags, rests or has forgotten that part of the chain gives no answer, and then nothing is void.

use std::time::Instant;

use chain::{Agreement, Claim, Fate, FateQuestion, Head, TxStatus};
use futures::future::join_all;
use payment::{AssetRef, BindingKind, BlockRef, Closing, Effect, EffectCheck};
use sqlx::Row as _;
use types::{JobId, TxHash};

use super::chain_loop::{ChainLoop, Held, LoopError};
use super::follow::place_in;
use super::settle::told;
use crate::heads::repo::signed;
use crate::watch::domain::Watch;
use crate::watch::evidence::{self, Evidence};
use crate::watch::row::Stored;
use crate::watch::{Event, Outcome, State, WatchError, repo};

/// Bindings asked about in one look, each with a few questions to every node.
const BATCH: i64 = 64;
/// Of them at the same time.
const AT_ONCE: usize = 8;
/// The first step below the registered block when a nonce was used before that; each further one is four times as far.
const FIRST_LOOKBACK: u64 = 64;
/// How many blocks later an open nonce is noted again. Nodes that are no archives keep the state of about 128 blocks, and the
/// search for whoever used a nonce up needs that of the block it begins at.
const NOTED_EVERY: u64 = 8;

impl ChainLoop {
    pub(super) async fn check_void(&self, held: &mut Held) -> Result<(), LoopError> {
        held.void_at = Instant::now() + self.parts.follow.void_check;
        let Some(asof) = held.asof.filter(|_| !held.halted) else { return Ok(()) };
        let candidates = self.candidates(held, &asof).await?;
        let is_last = i64::try_from(candidates.len()).is_ok_and(|count| count < BATCH);
        held.forget_hints(|job| candidates.contains(job), is_last && held.void_after.is_none());
        let began = Instant::now();
        for some in candidates.chunks(AT_ONCE) {
            // Written down piece by piece, so that a look that is cut short was not for nothing.
            if began.elapsed() >= held.lease.ttl() / 2 {
                held.void_at = Instant::now();
                return Ok(());
            }
            self.check_some(held, some, &asof).await?;
            held.void_after = some.last().copied();
        }
        // Those that cannot be decided must not keep the others from being asked about: the next look goes on behind them.
        if is_last {
            held.void_after = None;
        }
        Ok(())
    }

    async fn check_some(&self, held: &mut Held, jobs: &[JobId], asof: &Head) -> Result<(), LoopError> {
        let mut asked = Vec::with_capacity(jobs.len());
        for job in jobs {
            held.doubted.remove(job);
            let Some(stored) = repo::find(&self.parts.pool, *job).await? else { continue };
            if stored.watch.state != State::Waiting {
                continue;
            }
            if let Some(question) = self.question(held, &stored.watch, asof) {
                asked.push((stored, question));
            }
        }
        let fates = join_all(asked.iter().map(|(_, question)| self.edge.fate(question)));
        let fates = self.while_asking(held, fates).await?;
        for ((stored, question), fate) in asked.iter().zip(fates) {
            if matches!(fate, Agreement::Agreed { value: Fate::Open, .. }) {
                self.note_open(held, stored, asof).await?;
            }
            if self.take_fate(held, &stored.watch, question, fate).await? {
                // The next nonce of that sender may be void too.
                held.void_at = Instant::now();
            }
        }
        Ok(())
    }

    async fn candidates(&self, held: &Held, asof: &Head) -> Result<Vec<JobId>, WatchError> {
        let chain = self.settings.name.as_str();
        let after = held.void_after.map(|job| job.as_uuid());
        let rows = match self.edge.binding_kind() {
            BindingKind::Nonce => {
                sqlx::query(include_str!("../../queries/void_nonces.sql"))
                    .bind(chain)
                    .bind(BATCH)
                    .bind(after)
                    .bind(held.doubted.iter().map(JobId::as_uuid).collect::<Vec<_>>())
                    .fetch_all(&self.parts.pool)
                    .await?
            }
            BindingKind::Window => {
                let time_ms = signed(asof.timestamp_ms);
                sqlx::query(include_str!("../../queries/void_windows.sql"))
                    .bind(chain)
                    .bind(time_ms)
                    .bind(BATCH)
                    .bind(after)
                    .fetch_all(&self.parts.pool)
                    .await?
            }
        };
        rows.iter().map(|row| Ok(JobId::from_uuid(row.try_get("job_id")?))).collect()
    }

    fn question(&self, held: &Held, watch: &Watch, asof: &Head) -> Option<FateQuestion> {
        // Execution names the head at which it took the nonce, if it knows, or the block that a window refers to.
        let named = watch.present().map(|tx| tx.reference_block);
        let since = match self.edge.binding_kind() {
            BindingKind::Nonce => {
                let named = named.filter(|number| *number > 0).min();
                match (watch.since_block, held.lookback.get(&watch.job).copied().unwrap_or(0)) {
                    // No final block was known when the round began.
                    (0, 0) => named.unwrap_or(0),
                    (since, 0) => since,
                    (since, back) => named.unwrap_or(since).min(since).saturating_sub(back),
                }
            }
            BindingKind::Window => named.min()?,
        };
        let ours = watch.present().map(|tx| tx.hash).collect();
        Some(FateQuestion { closing: watch.closing()?, ours, asof: *asof, since })
    }

    /// Notes as of which block a round was open, and that it waits for no answer. What is open at a nonce is so at all above it.
    async fn note_open(&self, held: &mut Held, stored: &Stored, asof: &Head) -> Result<(), LoopError> {
        let watch = &stored.watch;
        held.lookback.remove(&watch.job);
        let Some(nonce) = watch.nonce() else {
            return match stored.delayed_reason.as_str() {
                "" => Ok(()),
                _ => self.delay(held, watch.job, String::new()).await,
            };
        };
        if stored.delayed_reason.is_empty() && watch.since_block.saturating_add(NOTED_EVERY) > asof.number {
            return Ok(());
        }
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        sqlx::query(include_str!("../../queries/void_open.sql"))
            .bind(self.settings.name.as_str())
            .bind(watch.effect.from.to_string())
            .bind(signed(nonce))
            .bind(signed(asof.number))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        held.note(fence);
        Ok(())
    }

    /// Whether the round was closed.
    async fn take_fate(
        &self,
        held: &mut Held,
        watch: &Watch,
        question: &FateQuestion,
        fate: Agreement<Fate>,
    ) -> Result<bool, LoopError> {
        let job = watch.job;
        let asked = self.settings.nodes.len();
        match fate {
            Agreement::Agreed { value: Fate::Open, .. } => Ok(false),
            // It landed and the heads did not show it, for instance while a node was away.
            Agreement::Agreed { value: Fate::Ours { hash, block }, .. } => {
                self.sight(held, job, hash, block).await?;
                Ok(false)
            }
            Agreement::Agreed { by, .. } if by.len() < asked => {
                self.delay(
                    held,
                    job,
                    format!("{} of {asked} nodes have answered whether it can still land", by.len()),
                )
                .await?;
                Ok(false)
            }
            Agreement::Agreed { value: Fate::Foreign { hash, block }, .. } => {
                if let Some(doubt) = self.doubt_foreign(held, watch, hash, &question.asof).await? {
                    held.doubted.insert(job);
                    self.delay(held, job, doubt).await?;
                    return Ok(false);
                }
                let reason =
                    format!("transaction {hash} is final in block {} at the same nonce", block.number);
                let event = Event::Closed { foreign: Some(hash), block, reason };
                self.close(held, watch, event).await
            }
            Agreement::Agreed { value: Fate::Expired { .. }, .. } => {
                let block = BlockRef::from(question.asof);
                let reason =
                    format!("it expired before final block {} and is in none up to it", block.number);
                self.close(held, watch, Event::Closed { foreign: None, block, reason }).await
            }
            Agreement::Disagreed { .. } => {
                let chain = self.settings.name.to_string();
                metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain).increment(1);
                self.delay(held, job, "nodes disagree on whether it can still land".to_owned()).await?;
                Ok(false)
            }
            Agreement::TooFew { answers, silent, .. } => {
                if matches!(question.closing, Closing::Nonce { .. }) {
                    // The nonce may have been used before the watch began: look further back next time. From the
                    // first block on begin anew, for nodes that were only away or have pruned what is that old.
                    let step = held.lookback.entry(job).or_insert(0);
                    *step = if question.since == 0 { 0 } else { step.saturating_mul(4).max(FIRST_LOOKBACK) };
                }
                let (got, silent) = (answers.len(), told(&silent));
                self.delay(held, job, format!("{got} nodes have said whether it can still land: {silent}"))
                    .await?;
                Ok(false)
            }
        }
    }

    /// Why a transaction that is not known here does not prove the round void: it makes the very payment, so it is ours and we
    /// were not told yet, or somebody restored an old database; or the nodes do not agree on what it does, or do not tell.
    async fn doubt_foreign(
        &self,
        held: &mut Held,
        watch: &Watch,
        hash: TxHash,
        asof: &Head,
    ) -> Result<Option<String>, LoopError> {
        let claim = [Claim { hash, effect: Effect::Moves(watch.effect) }];
        let standing = self.while_asking(held, self.edge.settlements(&claim, asof)).await?.pop();
        let Some(Agreement::Agreed { value: TxStatus::Settled(settlement), .. }) = standing else {
            return Ok(Some(format!(
                "nodes do not agree on what {hash} does, which is final at the same nonce"
            )));
        };
        let doubt = match settlement.effect {
            EffectCheck::Happened => "has made the payment".to_owned(),
            // A token that takes a fee shows a payment of ours like this.
            EffectCheck::WrongAmount { moved } if watch.effect.asset != AssetRef::Native => {
                format!("has brought the receiver {moved} of the token")
            }
            effect if Outcome::of(&effect, false).is_none() => {
                format!("is final at the same nonce, and the nodes do not tell what it did: {effect:?}")
            }
            EffectCheck::Reverted | EffectCheck::NoEffect { .. } | EffectCheck::WrongAmount { .. } => {
                return Ok(None);
            }
        };
        Ok(Some(format!("transaction {hash}, which is not known here, {doubt}")))
    }

    async fn close(&self, held: &mut Held, watch: &Watch, event: Event) -> Result<bool, LoopError> {
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        // A transaction that was added while the nodes were asked is not covered by their answer.
        let known = repo::load_in(&mut tx, &[watch.job]).await?.pop();
        let unchanged = known.is_some_and(|known| known.watch == *watch);
        if !unchanged || fence.halted_reason.is_some() {
            held.note(fence);
            return Ok(false);
        }
        let evidence = vec![Evidence { job: watch.job, event }];
        evidence::record_in(&mut tx, &self.parts.key, fence.now, evidence).await?;
        tx.commit().await?;
        held.note(fence);
        Ok(true)
    }

    async fn sight(
        &self,
        held: &mut Held,
        job: JobId,
        hash: TxHash,
        block: BlockRef,
    ) -> Result<(), LoopError> {
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        place_in(&mut tx, &self.settings.name, &[(hash, block, job)]).await?;
        let evidence = vec![Evidence { job, event: Event::Seen { tx: hash, block } }];
        evidence::record_in(&mut tx, &self.parts.key, fence.now, evidence).await?;
        tx.commit().await?;
        held.note(fence);
        held.settle_at = Instant::now();
        Ok(())
    }

    async fn delay(&self, held: &mut Held, job: JobId, reason: String) -> Result<(), LoopError> {
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        repo::set_delayed_in(&mut tx, &self.settings.name, &[(job, reason)]).await?;
        tx.commit().await?;
        held.note(fence);
        Ok(())
    }
}
