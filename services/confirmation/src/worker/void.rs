//! Nonces and windows used up by something else: the positive evidence that nothing of a round can land.
//!
//! On chains with nonces only the lowest waiting nonce of each sender is checked: while that is open, all above it are. One
//! that is used up in a way that decides nothing does not block those above it. The answer must come from every configured
//! node. While one lags, is away or has pruned that part of the chain, nothing is void.

use std::time::Instant;

use chain::{Agreement, Claim, Fate, FateQuestion, Head, TxStatus};
use futures::future::join_all;
use payment::{AssetRef, BindingKind, BlockRef, Closing, Effect, EffectCheck};
use types::{JobId, TxHash};

use super::chain_loop::ChainLoop;
use super::leased::Leased;
use super::settle::join_answers;
use crate::error::Error;
use crate::verdict::Evidence;
use crate::watch::repo::schedule::{self, VoidCandidates};
use crate::watch::repo::transactions::{self, Sighting};
use crate::watch::{Event, Outcome, State, StoredWatch, Watch, repo};

/// Bindings checked in one tick, each with a few calls to every node.
const BATCH: i64 = 64;
/// Bindings checked at the same time.
const AT_ONCE: usize = 8;
/// The first step below the registered block when a nonce was used before that; each further one is four times as far.
const FIRST_LOOKBACK: u64 = 64;
/// After how many blocks it is stored again that a nonce was open. Nodes that are no archives keep the state of about 128
/// blocks, and the search for the transaction that used a nonce needs the state of the block it begins at.
const NOTED_EVERY: u64 = 8;

impl ChainLoop {
    pub(super) async fn check_void(&self, leased: &mut Leased) -> Result<(), Error> {
        leased.void_at = Instant::now() + self.context.follow.void_check;
        let Some(as_of) = leased.as_of.filter(|_| !leased.halted) else { return Ok(()) };
        let doubted: Vec<JobId> = leased.doubted.iter().copied().collect();
        let wanted = VoidCandidates {
            binding: self.edge.binding_kind(),
            final_time_ms: as_of.timestamp_ms,
            after: leased.void_after,
            doubted: &doubted,
            rows: BATCH,
        };
        let candidates = schedule::void_candidates(&self.context.pool, &self.settings.name, wanted).await?;
        let is_last = i64::try_from(candidates.len()).is_ok_and(|count| count < BATCH);
        leased.drop_hints(|job| candidates.contains(job), is_last && leased.void_after.is_none());
        let began = Instant::now();
        for some in candidates.chunks(AT_ONCE) {
            // Results are written chunk by chunk, so that a check that is cut short was not in vain.
            if began.elapsed() >= leased.lease.ttl() / 2 {
                leased.void_at = Instant::now();
                return Ok(());
            }
            self.check_some(leased, some, &as_of).await?;
            leased.void_after = some.last().copied();
        }
        // Jobs that cannot be decided must not keep others from being checked, so the next check goes on behind them.
        if is_last {
            leased.void_after = None;
        }
        Ok(())
    }

    async fn check_some(&self, leased: &mut Leased, jobs: &[JobId], as_of: &Head) -> Result<(), Error> {
        let mut asked = Vec::with_capacity(jobs.len());
        for job in jobs {
            leased.doubted.remove(job);
            let Some(stored) = repo::find(&self.context.pool, *job).await? else { continue };
            if stored.watch.state != State::Waiting {
                continue;
            }
            if let Some(question) = self.question(leased, &stored.watch, as_of) {
                asked.push((stored, question));
            }
        }
        let fates = join_all(asked.iter().map(|(_, question)| self.edge.fate(question)));
        let fates = self.query(leased, fates).await?;
        for ((stored, question), fate) in asked.iter().zip(fates) {
            if matches!(fate, Agreement::Agreed { value: Fate::Open, .. }) {
                self.note_open(leased, stored, as_of).await?;
            }
            if self.take_fate(leased, &stored.watch, question, fate).await? {
                // The next nonce of that sender may be void too.
                leased.void_at = Instant::now();
            }
        }
        Ok(())
    }

    fn question(&self, leased: &Leased, watch: &Watch, as_of: &Head) -> Option<FateQuestion> {
        // Execution names the head at which it took the nonce, if it knows it, or the block that a window refers to.
        let named = watch.present().map(|tx| tx.reference_block);
        let since = match self.edge.binding_kind() {
            BindingKind::Nonce => {
                let named = named.filter(|number| *number > 0).min();
                match (watch.since_block, leased.lookback.get(&watch.job).copied().unwrap_or(0)) {
                    // No final block was known when the round began.
                    (0, 0) => named.unwrap_or(0),
                    (since, 0) => since,
                    (since, back) => named.unwrap_or(since).min(since).saturating_sub(back),
                }
            }
            BindingKind::Window => named.min()?,
        };
        let ours = watch.present().map(|tx| tx.hash).collect();
        Some(FateQuestion { closing: watch.closing()?, ours, asof: *as_of, since })
    }

    /// Stores as of which block a round was open, and clears what delayed it. When a nonce is open, all above it are.
    async fn note_open(&self, leased: &mut Leased, stored: &StoredWatch, as_of: &Head) -> Result<(), Error> {
        let watch = &stored.watch;
        leased.lookback.remove(&watch.job);
        let Some(nonce) = watch.nonce() else {
            return match stored.delayed_reason.as_str() {
                "" => Ok(()),
                _ => self.delay(leased, watch.job, String::new()).await,
            };
        };
        if stored.delayed_reason.is_empty() && watch.since_block.saturating_add(NOTED_EVERY) > as_of.number {
            return Ok(());
        }
        let mut tx = self.begin(leased).await?;
        let chain = &self.settings.name;
        schedule::note_open_in(tx.connection(), chain, watch.effect.sender(), nonce, as_of.number).await?;
        tx.commit(leased).await
    }

    /// Returns whether the round was closed.
    async fn take_fate(
        &self,
        leased: &mut Leased,
        watch: &Watch,
        question: &FateQuestion,
        fate: Agreement<Fate>,
    ) -> Result<bool, Error> {
        let job = watch.job;
        let asked = self.settings.nodes.len();
        match fate {
            Agreement::Agreed { value: Fate::Open, .. } => Ok(false),
            // It landed, and the heads did not show it, for instance because a node was away.
            Agreement::Agreed { value: Fate::Ours { hash, block }, .. } => {
                self.include(leased, Sighting { job, tx: hash, block }).await?;
                Ok(false)
            }
            Agreement::Agreed { by, .. } if by.len() < asked => {
                self.delay(
                    leased,
                    job,
                    format!("{} of {asked} nodes have answered whether it can still land", by.len()),
                )
                .await?;
                Ok(false)
            }
            Agreement::Agreed { value: Fate::Foreign { hash, block }, .. } => {
                if let Some(doubt) = self.doubt_foreign(leased, watch, hash, &question.asof).await? {
                    leased.doubted.insert(job);
                    self.delay(leased, job, doubt).await?;
                    return Ok(false);
                }
                let reason =
                    format!("transaction {hash} is final in block {} at the same nonce", block.number);
                let event = Event::Closed { foreign: Some(hash), block, reason };
                self.close(leased, watch, event).await
            }
            Agreement::Agreed { value: Fate::Expired { .. }, .. } => {
                let block = BlockRef::from(question.asof);
                let reason =
                    format!("it expired before final block {} and is in none up to it", block.number);
                self.close(leased, watch, Event::Closed { foreign: None, block, reason }).await
            }
            Agreement::Disagreed { .. } => {
                let chain = self.settings.name.to_string();
                metrics::counter!("bursar_confirmation_disagreements_total", "chain" => chain).increment(1);
                self.delay(leased, job, "nodes disagree on whether it can still land".to_owned()).await?;
                Ok(false)
            }
            Agreement::TooFew { answers, silent, .. } => {
                if matches!(question.closing, Closing::Nonce { .. }) {
                    // The nonce may have been used before the watch began, so the next search begins further back. Once it
                    // began at the first block it starts over, for nodes that were only away or have pruned old blocks.
                    let step = leased.lookback.entry(job).or_insert(0);
                    *step = if question.since == 0 { 0 } else { step.saturating_mul(4).max(FIRST_LOOKBACK) };
                }
                let (got, silent) = (answers.len(), join_answers(&silent));
                self.delay(leased, job, format!("{got} nodes have said whether it can still land: {silent}"))
                    .await?;
                Ok(false)
            }
        }
    }

    /// Why a transaction that is not known here does not prove the round void: it makes the same payment, so it may be ours and
    /// not registered yet, or an old database was restored; or the nodes do not agree on what it did, or do not say.
    async fn doubt_foreign(
        &self,
        leased: &mut Leased,
        watch: &Watch,
        hash: TxHash,
        as_of: &Head,
    ) -> Result<Option<String>, Error> {
        // It may have the effect of any transaction of the round, except that of a cancellation, which pays nothing.
        let mut effects = vec![watch.effect];
        for tx in watch.present().filter(|tx| !tx.is_cancellation()) {
            if !effects.contains(&tx.effect) {
                effects.push(tx.effect);
            }
        }
        let claims: Vec<Claim> = effects.into_iter().map(|effect| Claim { hash, effect }).collect();
        let mut statuses = self.query(leased, self.edge.settlements(&claims, as_of)).await?.into_iter();
        Ok(claims.iter().find_map(|claim| doubt(claim, statuses.next())))
    }

    async fn close(&self, leased: &mut Leased, watch: &Watch, event: Event) -> Result<bool, Error> {
        let mut tx = self.begin(leased).await?;
        // The nodes' answer does not cover a transaction that was added in the meantime.
        let known = repo::load_in(tx.connection(), &[watch.job]).await?.pop();
        let unchanged = known.is_some_and(|known| known.watch == *watch);
        if !unchanged || tx.is_halted() {
            tx.commit(leased).await?;
            return Ok(false);
        }
        self.record_in(&mut tx, vec![Evidence { job: watch.job, event }]).await?;
        tx.commit(leased).await?;
        Ok(true)
    }

    async fn include(&self, leased: &mut Leased, seen: Sighting) -> Result<(), Error> {
        let mut tx = self.begin(leased).await?;
        transactions::include_in(tx.connection(), &self.settings.name, &[seen]).await?;
        self.record_in(&mut tx, vec![seen.into()]).await?;
        tx.commit(leased).await?;
        leased.settle_at = Instant::now();
        Ok(())
    }

    async fn delay(&self, leased: &mut Leased, job: JobId, reason: String) -> Result<(), Error> {
        let mut tx = self.begin(leased).await?;
        schedule::set_delayed_in(tx.connection(), &self.settings.name, &[(job, reason)]).await?;
        tx.commit(leased).await
    }
}

/// Why a foreign transaction may have had the effect of ours.
fn doubt(claim: &Claim, status: Option<Agreement<TxStatus>>) -> Option<String> {
    let Claim { hash, effect } = claim;
    let Some(Agreement::Agreed { value: TxStatus::Settled(settlement), .. }) = status else {
        return Some(format!("nodes do not agree on what {hash} does, which is final at the same nonce"));
    };
    let is_token = matches!(effect, Effect::Moves(transfer) if transfer.asset != AssetRef::Native);
    let doubt = match settlement.effect {
        EffectCheck::Happened => "has made the payment".to_owned(),
        // A payment of ours in a token that takes a fee looks like this.
        EffectCheck::WrongAmount { moved } if is_token => {
            format!("has brought the receiver {moved} of the token")
        }
        check if Outcome::of(effect, &check).is_none() => {
            format!("is final at the same nonce, and the nodes do not tell what it did: {check:?}")
        }
        EffectCheck::Reverted | EffectCheck::NoEffect { .. } | EffectCheck::WrongAmount { .. } => {
            return None;
        }
    };
    Some(format!("transaction {hash}, which is not known here, {doubt}"))
}
