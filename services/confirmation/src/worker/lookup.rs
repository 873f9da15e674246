//! Lookups: a watch that was just added may already be in a block, and one that has waited for long may have been missed.
//! Each is looked up once, then again after every stuck interval. One that is still waiting then is reported as stuck, or
//! its `delayed_reason` says that nothing can be done about it.
//!
//! A lookup that finds nothing changes nothing but its own due time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chain::Seen;
use payment::BlockRef;
use types::TxHash;

use super::chain_loop::ChainLoop;
use super::leased::Leased;
use crate::error::Error;
use crate::verdict::Evidence;
use crate::watch::Event;
use crate::watch::repo::schedule::{self, DueWatch};
use crate::watch::repo::transactions::{self, Sighting};

/// Watches looked up in one tick.
const BATCH: i64 = 500;
/// When not every node answered, or one is ahead of our own view.
const SOON: Duration = Duration::from_secs(2);
/// On chains where nothing is ever reported as stuck.
const WITHOUT_LIMIT: Duration = Duration::from_secs(300);
/// Shown for an overdue transaction of another system: nobody can raise its fee, and nothing will ever rule it out.
const UNBOUND: &str =
    "neither its nonce nor an expiration is known here: nothing can show that it will never land";

enum LookupResult {
    Included(TxHash, BlockRef),
    NotFound { all_answered: bool },
}

impl ChainLoop {
    /// Returns whether there is more to look up at once.
    pub(super) async fn look_up(&self, leased: &mut Leased) -> Result<bool, Error> {
        let chain = &self.settings.name;
        let due = schedule::due(&self.context.pool, chain, BATCH).await?;
        if due.is_empty() {
            return Ok(false);
        }
        let all: Vec<TxHash> = due.iter().flat_map(|due| due.hashes.iter().copied()).collect();
        let sightings = self.query(leased, self.edge.lookup(&all)).await??;
        let seen: HashMap<TxHash, (Seen, bool)> = sightings
            .into_iter()
            .map(|sighting| (sighting.hash, (sighting.seen, sighting.answered == sighting.asked)))
            .collect();
        let (mut overdue, mut included, mut next) = (Vec::new(), Vec::new(), Vec::with_capacity(due.len()));
        let mut delayed = Vec::new();
        let interval = self.settings.stuck_after.unwrap_or(WITHOUT_LIMIT);
        for DueWatch { job, version, waited, hashes, is_bound } in &due {
            let all_answered = match find(hashes, &seen, leased) {
                LookupResult::Included(tx, block) => {
                    included.push(Sighting { job: *job, tx, block });
                    continue;
                }
                LookupResult::NotFound { all_answered } => all_answered,
            };
            let waited_std = waited.to_std().unwrap_or_default();
            let is_overdue = self.settings.stuck_after.is_some_and(|after| waited_std >= after);
            if is_overdue && !is_bound {
                delayed.push((*job, UNBOUND.to_owned()));
            } else if is_overdue
                && !leased.halted
                && let Some(newest) = hashes.last()
            {
                let event = Event::Overdue { newest: *newest, waited: *waited };
                overdue.push(Evidence { job: *job, event });
            }
            let pause = if all_answered || is_overdue { interval } else { SOON.min(interval) };
            next.push((*job, *version, pause));
        }
        let evidence = included.iter().copied().map(Evidence::from).chain(overdue).collect();
        let mut tx = self.begin(leased).await?;
        transactions::include_in(tx.connection(), chain, &included).await?;
        schedule::reschedule_in(tx.connection(), &next).await?;
        self.record_in(&mut tx, evidence).await?;
        schedule::set_delayed_in(tx.connection(), chain, &delayed).await?;
        tx.commit(leased).await?;
        // Something may be below the final block already.
        if !included.is_empty() {
            leased.settle_at = Instant::now();
        }
        Ok(i64::try_from(due.len()).is_ok_and(|count| count >= BATCH))
    }
}

fn find(hashes: &[TxHash], seen: &HashMap<TxHash, (Seen, bool)>, leased: &Leased) -> LookupResult {
    let mut all_answered = true;
    for hash in hashes {
        match seen.get(hash) {
            Some((Seen::Included(block), _)) => {
                let above = leased.ring.tip().is_none_or(|tip| block.number > tip.number);
                let elsewhere = leased.ring.is_canonical(block.number, &block.hash) == Some(false);
                if !above && !elsewhere {
                    return LookupResult::Included(*hash, *block);
                }
                // A block that was not read yet will be read; one on another branch proves nothing.
                all_answered = false;
            }
            Some((Seen::Nowhere | Seen::Pending, by_all)) => all_answered &= by_all,
            None => all_answered = false,
        }
    }
    LookupResult::NotFound { all_answered }
}
