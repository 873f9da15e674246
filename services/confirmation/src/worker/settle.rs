//! What is final: verdicts on everything that was seen at or below the agreed final block, with the nodes' agreement on
//! each. A failure needs the same evidence as a success.
//!
//! Also finality that was undone: if the agreed final chain no longer contains the block that was final before, the ends that
//! depend on undone blocks are contradicted and the chain halts until an operator resumes it.

use std::time::Instant;

use chain::{Agreement, Claim, Head, NodeName, TxStatus};
use payment::BlockRef;
use telemetry::crash_point;
use types::{JobId, TxHash};

use super::chain_loop::ChainLoop;
use super::leased::Leased;
use super::{as_gauge, count};
use crate::error::Error;
use crate::heads::repo as heads;
use crate::verdict::Evidence;
use crate::watch::repo::transactions::{self, Undecided};
use crate::watch::repo::{self, schedule};
use crate::watch::{Event, Outcome};

/// Transactions judged in one query to the nodes and one database transaction.
const PAGE: i64 = 500;

/// What follows from the nodes' answers.
#[derive(Default)]
struct Judgement {
    events: Vec<Evidence>,
    finals: Vec<(TxHash, BlockRef)>,
    gone: Vec<TxHash>,
    delayed: Vec<(JobId, String)>,
}

impl ChainLoop {
    pub(super) async fn settle(&self, leased: &mut Leased) -> Result<(), Error> {
        leased.settle_at = Instant::now() + self.context.follow.retry;
        let Some(as_of) = self.agreed_final(leased).await? else { return Ok(()) };
        if self.is_overturned(leased, &as_of).await? || leased.halted {
            return Ok(());
        }
        leased.as_of = Some(as_of);
        self.clear_delays(leased, &as_of).await?;
        let mut last = None;
        loop {
            let (pool, chain) = (&self.context.pool, &self.settings.name);
            let mut page = transactions::undecided(pool, chain, as_of.number, last.as_ref(), PAGE).await?;
            if page.is_empty() {
                break;
            }
            let claims: Vec<Claim> =
                page.iter().map(|tx| Claim { hash: tx.hash, effect: tx.effect }).collect();
            let statuses = self.query(leased, self.edge.settlements(&claims, &as_of)).await?;
            let judged = judge(&page, statuses, &as_of);
            if !judged.delayed.is_empty() {
                let count = u64::try_from(judged.delayed.len()).unwrap_or(u64::MAX);
                metrics::counter!("bursar_confirmation_delayed_verdicts_total", "chain" => chain.to_string())
                    .increment(count);
            }
            if !self.write_judgement(leased, judged).await? {
                return Ok(());
            }
            if i64::try_from(page.len()).is_ok_and(|count| count < PAGE) {
                break;
            }
            last = page.pop();
        }
        self.advance_final(leased, &as_of).await
    }

    /// The final block, if enough nodes agree on it and it is on the followed chain.
    async fn agreed_final(&self, leased: &mut Leased) -> Result<Option<Head>, Error> {
        let chain = &self.settings.name;
        let labels = [("chain", chain.to_string())];
        let (mut agreed, mut doubt, mut missing) = (None, None, None);
        match self.query(leased, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => match leased.ring.is_canonical(value.number, &value.hash) {
                Some(false) => doubt = Some("the followed branch is not the agreed final one".to_owned()),
                // It is above the tip, and will be judged once that block was read.
                None if leased.ring.tip().is_none_or(|tip| value.number > tip.number) => {}
                Some(true) | None => agreed = Some(value),
            },
            Agreement::Disagreed { .. } => doubt = Some("nodes disagree on the final block".to_owned()),
            Agreement::TooFew { needed, answers, silent } => {
                // Only their names, because why each is silent changes all the time and this is written to every watch.
                let names = silent.iter().map(|(node, _)| node.as_ref()).collect::<Vec<_>>().join(", ");
                let got = answers.len();
                missing = Some(format!("{got} of {needed} nodes needed name the final block, not {names}"));
            }
        }
        let in_doubt = if doubt.is_some() { 1.0 } else { 0.0 };
        metrics::gauge!("bursar_confirmation_finality_in_doubt", &labels).set(in_doubt);
        if let Some(doubt) = &doubt {
            metrics::counter!("bursar_confirmation_disagreements_total", &labels).increment(1);
            tracing::warn!(%chain, doubt, "no verdicts");
        }
        if let Some(reason) = doubt.or(missing) {
            self.delay_all(leased, &reason).await?;
        }
        Ok(agreed)
    }

    /// Stores on every included watch why its verdict is late.
    pub(super) async fn delay_all(&self, leased: &mut Leased, reason: &str) -> Result<(), Error> {
        let mut tx = self.begin(leased).await?;
        schedule::delay_included_in(tx.connection(), &self.settings.name, reason).await?;
        tx.commit(leased).await?;
        leased.delayed_all = true;
        Ok(())
    }

    /// Clears the reason that [`Self::delay_all`] stored on watches that wait for nothing but their depth. Those at or below
    /// the final block are judged now and get a reason of their own.
    async fn clear_delays(&self, leased: &mut Leased, as_of: &Head) -> Result<(), Error> {
        if !leased.delayed_all {
            return Ok(());
        }
        let mut tx = self.begin(leased).await?;
        schedule::clear_delays_above_in(tx.connection(), &self.settings.name, as_of.number).await?;
        tx.commit(leased).await?;
        leased.delayed_all = false;
        Ok(())
    }

    /// Whether the block that was final is gone from the chain. While it is, nothing is decided. Once the nodes agree on a
    /// final block beyond it, the ends that depend on undone blocks are contradicted and the chain halts.
    async fn is_overturned(&self, leased: &mut Leased, as_of: &Head) -> Result<bool, Error> {
        let Some(was) = leased.final_block else { return Ok(false) };
        if leased.ring.is_canonical(was.number, &was.hash) != Some(false) {
            return Ok(false);
        }
        let chain = &self.settings.name;
        // The ring is linked by parents, so a final block at or above that height proves whether the old one is in its past.
        let proven =
            as_of.number >= was.number && leased.ring.is_canonical(as_of.number, &as_of.hash) == Some(true);
        if !proven {
            tracing::error!(%chain, block = was.number, hash = %was.hash, "a final block is gone from the followed branch");
            self.delay_all(leased, "a block that was final is gone from the followed branch").await?;
            return Ok(true);
        }
        let reason =
            format!("block {} ({}) was final and is not on the chain any more", was.number, was.hash);
        let lowest = leased.ring.lowest().map_or(0, |head| head.number);
        let mut tx = self.begin(leased).await?;
        let gone: Vec<Evidence> = repo::ended_since_in(tx.connection(), chain, lowest)
            .await?
            .into_iter()
            .filter(|(_, block)| leased.ring.is_canonical(block.number, &block.hash) != Some(true))
            .map(|(job, block)| {
                let reason = format!("its block {} ({}) was final and was undone", block.number, block.hash);
                Evidence { job, event: Event::Overturned { reason } }
            })
            .collect();
        let findings = self.record_in(&mut tx, gone).await?;
        heads::halt_in(tx.connection(), chain, &reason).await?;
        heads::save_final_in(tx.connection(), chain, BlockRef::from(*as_of)).await?;
        tx.commit(leased).await?;
        (leased.halted, leased.final_block) = (true, Some(BlockRef::from(*as_of)));
        tracing::error!(%chain, reason, contradicted = count(&findings, "contradicted"), "chain halted");
        Ok(true)
    }

    /// Writes a page of verdicts in one transaction. Returns whether to go on, which is false once the chain is halted.
    async fn write_judgement(&self, leased: &mut Leased, judged: Judgement) -> Result<bool, Error> {
        let Judgement { events, finals, gone, delayed } = judged;
        if events.is_empty() && delayed.is_empty() {
            return Ok(true);
        }
        let chain = &self.settings.name;
        let mut tx = self.begin(leased).await?;
        if tx.is_halted() {
            tx.commit(leased).await?;
            return Ok(false);
        }
        transactions::finalize_in(tx.connection(), chain, &finals).await?;
        transactions::clear_blocks_in(tx.connection(), chain, &gone).await?;
        schedule::set_delayed_in(tx.connection(), chain, &delayed).await?;
        let findings = self.record_in(&mut tx, events).await?;
        let contradicted = count(&findings, "contradicted");
        if contradicted > 0 {
            let reason = format!("{contradicted} transactions landed that had been ruled out");
            heads::halt_in(tx.connection(), chain, &reason).await?;
            tracing::error!(%chain, reason, "chain halted");
        }
        crash_point("confirmation.before_verdict");
        tx.commit(leased).await?;
        crash_point("confirmation.after_verdict");
        leased.halted |= contradicted > 0;
        Ok(!leased.halted)
    }

    /// Stores the final block. It only moves forward, because a lower one comes from nodes that lag.
    async fn advance_final(&self, leased: &mut Leased, as_of: &Head) -> Result<(), Error> {
        if leased.final_block.is_some_and(|known| known.number >= as_of.number) {
            return Ok(());
        }
        let mut tx = self.begin(leased).await?;
        heads::save_final_in(tx.connection(), &self.settings.name, BlockRef::from(*as_of)).await?;
        tx.commit(leased).await?;
        leased.final_block = Some(BlockRef::from(*as_of));
        let chain = self.settings.name.to_string();
        metrics::gauge!("bursar_confirmation_final_number", "chain" => chain).set(as_gauge(as_of.number));
        Ok(())
    }
}

fn judge(page: &[Undecided], statuses: Vec<Agreement<TxStatus>>, as_of: &Head) -> Judgement {
    let mut judged = Judgement::default();
    for (undecided, agreement) in page.iter().zip(statuses) {
        let job = undecided.job;
        match agreement {
            Agreement::Agreed { value: TxStatus::Settled(settlement), .. } => {
                match Outcome::of(&undecided.effect, &settlement.effect) {
                    Some(outcome) => {
                        let (tx, block, cost) = (settlement.hash, settlement.block, settlement.cost);
                        judged.finals.push((tx, block));
                        judged
                            .events
                            .push(Evidence { job, event: Event::Final { tx, block, cost, outcome } });
                    }
                    None => {
                        let reason =
                            format!("the nodes' answer does not tell the effect: {:?}", settlement.effect);
                        judged.delayed.push((job, reason));
                    }
                }
            }
            // All nodes are at the final block and none has the transaction in its past, so the block it was seen in is not
            // canonical. That ends nothing: it may be in a pool or in a newer block already, so the watch waits again.
            Agreement::Agreed { value: TxStatus::NotSeen | TxStatus::NotFinal, .. } => {
                judged.gone.push(undecided.hash);
                judged.events.push(Evidence { job, event: Event::Undone { block: undecided.block } });
            }
            Agreement::Disagreed { answers, conflicts } => {
                let mut said: Vec<_> =
                    answers.iter().map(|(node, value)| (node.clone(), describe(value))).collect();
                said.extend(conflicts);
                let reason = format!("nodes disagree as of block {}: {}", as_of.number, join_answers(&said));
                judged.delayed.push((job, reason));
            }
            Agreement::TooFew { needed, answers, silent } => {
                let (got, silent) = (answers.len(), join_answers(&silent));
                judged.delayed.push((job, format!("{got} of {needed} nodes needed have answered: {silent}")));
            }
        }
    }
    judged
}

/// What each of these nodes said, in one line.
pub(super) fn join_answers(said: &[(NodeName, String)]) -> String {
    said.iter().map(|(node, why)| format!("{node} {why}")).collect::<Vec<_>>().join("; ")
}

fn describe(status: &TxStatus) -> String {
    match status {
        TxStatus::NotSeen => "does not know it".to_owned(),
        TxStatus::NotFinal => "has it above the final block".to_owned(),
        TxStatus::Settled(settlement) => {
            format!("has it in block {} ({:?})", settlement.block.number, settlement.effect)
        }
    }
}
