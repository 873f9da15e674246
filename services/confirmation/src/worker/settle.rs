//! What is final: verdicts on everything that was seen at or below the agreed final block, with the nodes' agreement on
//! each. Failure needs exactly what success needs.
//!
//! Also finality that was undone: if the agreed final chain no longer contains the block that was final before, the
//! ends that rest on what is gone are contradicted and the chain halts until a person has looked.

use std::time::Instant;

use chain::{Agreement, Claim, Head, NodeName, TxStatus};
use payment::{BlockRef, Effect, Transfer};
use sqlx::{PgConnection, Row as _};
use telemetry::crash_point;
use types::{JobId, TxHash};

use super::chain_loop::{ChainLoop, Held, LoopError};
use super::follow::as_gauge;
use crate::heads::repo as heads;
use crate::heads::repo::signed;
use crate::watch::evidence::{self, Evidence};
use crate::watch::{Event, Outcome, WatchError, repo, row};

/// Transactions judged in one question and one transaction.
const PAGE: i64 = 500;

/// A transaction at or below the final block that nobody has judged.
struct Undecided {
    hash: TxHash,
    job: JobId,
    is_cancellation: bool,
    block: BlockRef,
    expected: Transfer,
}

impl Undecided {
    fn claim(&self) -> Claim {
        let effect = match self.is_cancellation {
            true => Effect::Closes { sender: self.expected.from },
            false => Effect::Moves(self.expected),
        };
        Claim { hash: self.hash, effect }
    }
}

/// What the nodes' answers come to.
#[derive(Default)]
struct Judged {
    events: Vec<Evidence>,
    finals: Vec<(TxHash, BlockRef)>,
    gone: Vec<TxHash>,
    delayed: Vec<(JobId, String)>,
}

impl ChainLoop {
    pub(super) async fn settle(&self, held: &mut Held) -> Result<(), LoopError> {
        held.settle_at = Instant::now() + self.parts.follow.retry;
        let Some(asof) = self.agreed_final(held).await? else { return Ok(()) };
        if self.is_overturned(held, &asof).await? || held.halted {
            return Ok(());
        }
        held.asof = Some(asof);
        self.delay_no_longer(held, &asof).await?;
        let mut last = (-1, Vec::new());
        loop {
            let page = self.undecided(&asof, &last).await?;
            let Some(end) = page.last() else { break };
            last = (signed(end.block.number), end.hash.0.to_vec());
            let claims: Vec<Claim> = page.iter().map(Undecided::claim).collect();
            let standings = self.while_asking(held, self.edge.settlements(&claims, &asof)).await?;
            let judged = judge(&page, standings, &asof);
            if !judged.delayed.is_empty() {
                let chain = self.settings.name.to_string();
                let count = u64::try_from(judged.delayed.len()).unwrap_or(u64::MAX);
                metrics::counter!("bursar_confirmation_delayed_verdicts_total", "chain" => chain)
                    .increment(count);
            }
            if !self.write_judged(held, judged).await? {
                return Ok(());
            }
            if i64::try_from(page.len()).is_ok_and(|count| count < PAGE) {
                break;
            }
        }
        self.advance_final(held, &asof).await
    }

    /// The final block, when enough nodes agree on it and it is on the chain we follow.
    async fn agreed_final(&self, held: &mut Held) -> Result<Option<Head>, LoopError> {
        let chain = &self.settings.name;
        let labels = [("chain", chain.to_string())];
        let (mut agreed, mut doubt, mut missing) = (None, None, None);
        match self.while_asking(held, self.edge.finalized()).await?? {
            Agreement::Agreed { value, .. } => match held.ring.is_canonical(value.number, &value.hash) {
                Some(false) => doubt = Some("the followed branch is not the agreed final one".to_owned()),
                // Above the tip: known in a moment, once that block was read.
                None if held.ring.tip().is_none_or(|tip| value.number > tip.number) => {}
                Some(true) | None => agreed = Some(value),
            },
            Agreement::Disagreed { .. } => doubt = Some("nodes disagree on the final block".to_owned()),
            Agreement::TooFew { needed, answers, silent } => {
                // Their names alone: why each is silent changes all the time, and this is written on every watch.
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
            self.delay_all(held, &reason).await?;
        }
        Ok(agreed)
    }

    /// Says on every included watch why its verdict is late.
    pub(super) async fn delay_all(&self, held: &mut Held, reason: &str) -> Result<(), LoopError> {
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        sqlx::query(
            "UPDATE watches SET delayed_reason = $2, version = version + 1
             WHERE chain = $1 AND status = 'included' AND delayed_reason <> $2",
        )
        .bind(self.settings.name.as_str())
        .bind(reason)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        held.note(fence);
        held.delayed_all = true;
        Ok(())
    }

    /// Takes back what [`Self::delay_all`] said of watches that wait for nothing but their depth. Those at or below the final
    /// block are judged now, and say for themselves what they wait for.
    async fn delay_no_longer(&self, held: &mut Held, asof: &Head) -> Result<(), LoopError> {
        if !held.delayed_all {
            return Ok(());
        }
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        sqlx::query(
            "UPDATE watches SET delayed_reason = '', version = version + 1
             WHERE chain = $1 AND status = 'included' AND block_number > $2 AND delayed_reason <> ''",
        )
        .bind(self.settings.name.as_str())
        .bind(signed(asof.number))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        held.note(fence);
        held.delayed_all = false;
        Ok(())
    }

    /// Whether the block that was final is gone from the chain. While that is so nothing is decided; once the nodes
    /// agree on a final block beyond it, the ends that rest on undone blocks are contradicted and the chain halts.
    async fn is_overturned(&self, held: &mut Held, asof: &Head) -> Result<bool, LoopError> {
        let Some(was) = held.final_block else { return Ok(false) };
        if held.ring.is_canonical(was.number, &was.hash) != Some(false) {
            return Ok(false);
        }
        let chain = &self.settings.name;
        // The ring is linked by parents, so a final block at or above that height has it in its past, or has not.
        let proven =
            asof.number >= was.number && held.ring.is_canonical(asof.number, &asof.hash) == Some(true);
        if !proven {
            tracing::error!(%chain, block = was.number, hash = %was.hash, "a final block is gone from the followed branch");
            self.delay_all(held, "a block that was final is gone from the followed branch").await?;
            return Ok(true);
        }
        let reason =
            format!("block {} ({}) was final and is not on the chain any more", was.number, was.hash);
        let lowest = held.ring.lowest().map_or(0, |head| head.number);
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        let gone: Vec<Evidence> = ended_since_in(&mut tx, self.settings.name.as_str(), lowest)
            .await?
            .into_iter()
            .filter(|(_, block)| held.ring.is_canonical(block.number, &block.hash) != Some(true))
            .map(|(job, block)| {
                let reason = format!("its block {} ({}) was final and was undone", block.number, block.hash);
                Evidence { job, event: Event::Overturned { reason } }
            })
            .collect();
        let recorded = evidence::record_in(&mut tx, &self.parts.key, fence.now, gone).await?;
        heads::halt_in(&mut tx, chain, &reason).await?;
        heads::save_final_in(&mut tx, chain, BlockRef::from(*asof)).await?;
        tx.commit().await?;
        held.note(fence);
        (held.halted, held.final_block) = (true, Some(BlockRef::from(*asof)));
        tracing::error!(%chain, reason, contradicted = recorded.count("contradicted"), "chain halted");
        Ok(true)
    }

    async fn undecided(&self, asof: &Head, last: &(i64, Vec<u8>)) -> Result<Vec<Undecided>, WatchError> {
        let rows = sqlx::query(include_str!("../../queries/undecided.sql"))
            .bind(self.settings.name.as_str())
            .bind(signed(asof.number))
            .bind(last.0)
            .bind(&last.1)
            .bind(PAGE)
            .fetch_all(&self.parts.pool)
            .await?;
        let unsigned =
            |value: i64| u64::try_from(value).map_err(|error| crate::watch::error::corrupt("block", error));
        rows.iter()
            .map(|found| {
                let number = unsigned(found.try_get("block_number")?)?;
                Ok(Undecided {
                    hash: TxHash(found.try_get("hash")?),
                    job: JobId::from_uuid(found.try_get("job_id")?),
                    is_cancellation: found.try_get("is_cancellation")?,
                    block: BlockRef { number, hash: TxHash(found.try_get("block_hash")?) },
                    expected: row::effect(found)?,
                })
            })
            .collect()
    }

    /// Writes a page of verdicts in one transaction. Whether there may be more: not on a chain that was halted meanwhile.
    async fn write_judged(&self, held: &mut Held, judged: Judged) -> Result<bool, LoopError> {
        let Judged { events, finals, gone, delayed } = judged;
        if events.is_empty() && delayed.is_empty() {
            return Ok(true);
        }
        let chain = &self.settings.name;
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        if fence.halted_reason.is_some() {
            held.note(fence);
            return Ok(false);
        }
        finalize_in(&mut tx, chain.as_str(), &finals).await?;
        sqlx::query("UPDATE watched_transactions SET block_number = NULL, block_hash = NULL WHERE chain = $1 AND hash = ANY($2)")
            .bind(chain.as_str())
            .bind(gone.iter().map(|hash| hash.0.to_vec()).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
        repo::set_delayed_in(&mut tx, chain, &delayed).await?;
        let recorded = evidence::record_in(&mut tx, &self.parts.key, fence.now, events).await?;
        let contradicted = recorded.count("contradicted");
        if contradicted > 0 {
            let reason = format!("{contradicted} transactions landed that had been ruled out");
            heads::halt_in(&mut tx, chain, &reason).await?;
            tracing::error!(%chain, reason, "chain halted");
        }
        crash_point("confirmation.before_verdict");
        tx.commit().await?;
        crash_point("confirmation.after_verdict");
        held.note(fence);
        held.halted |= contradicted > 0;
        Ok(!held.halted)
    }

    /// Remembers the final block. It only moves forward; what is lower comes from nodes that lag.
    async fn advance_final(&self, held: &mut Held, asof: &Head) -> Result<(), LoopError> {
        if held.final_block.is_some_and(|known| known.number >= asof.number) {
            return Ok(());
        }
        let mut tx = db::begin(&self.parts.pool).await?;
        let fence = held.lease.fence_in(&mut tx).await?;
        heads::save_final_in(&mut tx, &self.settings.name, BlockRef::from(*asof)).await?;
        tx.commit().await?;
        held.note(fence);
        held.final_block = Some(BlockRef::from(*asof));
        let chain = self.settings.name.to_string();
        metrics::gauge!("bursar_confirmation_final_number", "chain" => chain).set(as_gauge(asof.number));
        Ok(())
    }
}

fn judge(page: &[Undecided], standings: Vec<Agreement<TxStatus>>, asof: &Head) -> Judged {
    let mut judged = Judged::default();
    for (undecided, agreement) in page.iter().zip(standings) {
        let job = undecided.job;
        match agreement {
            Agreement::Agreed { value: TxStatus::Settled(settlement), .. } => {
                match Outcome::of(&settlement.effect, undecided.is_cancellation) {
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
            // All nodes are at the final block and none has it in its past, so where we saw it is not canonical. That
            // ends nothing: it may land yet, in a pool or a newer block it may be already, and waits again.
            Agreement::Agreed { value: TxStatus::NotSeen | TxStatus::NotFinal, .. } => {
                judged.gone.push(undecided.hash);
                judged.events.push(Evidence { job, event: Event::Undone { block: undecided.block } });
            }
            Agreement::Disagreed { answers, conflicts } => {
                let mut said: Vec<_> =
                    answers.iter().map(|(node, value)| (node.clone(), tell(value))).collect();
                said.extend(conflicts);
                let reason = format!("nodes disagree as of block {}: {}", asof.number, told(&said));
                judged.delayed.push((job, reason));
            }
            Agreement::TooFew { needed, answers, silent } => {
                let (got, silent) = (answers.len(), told(&silent));
                judged.delayed.push((job, format!("{got} of {needed} nodes needed have answered: {silent}")));
            }
        }
    }
    judged
}

/// What each of these nodes said, in one line.
pub(super) fn told(said: &[(NodeName, String)]) -> String {
    said.iter().map(|(node, why)| format!("{node} {why}")).collect::<Vec<_>>().join("; ")
}

fn tell(standing: &TxStatus) -> String {
    match standing {
        TxStatus::NotSeen => "does not know it".to_owned(),
        TxStatus::NotFinal => "has it above the final block".to_owned(),
        TxStatus::Settled(settlement) => {
            format!("has it in block {} ({:?})", settlement.block.number, settlement.effect)
        }
    }
}

/// Marks these as judged, in the block the nodes agreed on.
async fn finalize_in(
    tx: &mut PgConnection,
    chain: &str,
    finals: &[(TxHash, BlockRef)],
) -> Result<(), WatchError> {
    sqlx::query(
        "UPDATE watched_transactions AS t SET block_number = n.number, block_hash = n.block, final_at = now()
         FROM unnest($2::bytea[], $3::bigint[], $4::bytea[]) AS n (hash, number, block)
         WHERE t.chain = $1 AND t.hash = n.hash",
    )
    .bind(chain)
    .bind(finals.iter().map(|(hash, _)| hash.0.to_vec()).collect::<Vec<_>>())
    .bind(finals.iter().map(|(_, block)| signed(block.number)).collect::<Vec<_>>())
    .bind(finals.iter().map(|(_, block)| block.hash.0.to_vec()).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Ends that rest on a block of this number or above.
async fn ended_since_in(
    tx: &mut PgConnection,
    chain: &str,
    number: u64,
) -> Result<Vec<(JobId, BlockRef)>, WatchError> {
    let rows = sqlx::query(
        "SELECT job_id, block_number, block_hash FROM watches
         WHERE chain = $1 AND block_number >= $2 AND status IN ('settled', 'reverted', 'void', 'cancelled')",
    )
    .bind(chain)
    .bind(signed(number))
    .fetch_all(tx)
    .await?;
    rows.iter()
        .map(|row| {
            let number = u64::try_from(row.try_get::<i64, _>("block_number")?);
            let number = number.map_err(|error| crate::watch::error::corrupt("block", error))?;
            let block = BlockRef { number, hash: TxHash(row.try_get("block_hash")?) };
            Ok((JobId::from_uuid(row.try_get("job_id")?), block))
        })
        .collect()
}
