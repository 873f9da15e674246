//! Ranges in MongoDB (`blockJobs`); `cursor` holds the calls about cursors (`lastBlock`), `undo` those about reorganisations.
//!
//! Every write to a job names the fence under which it was claimed, so that a worker whose lease expired matches nothing. Leases
//! and due times are computed by the server (`$$NOW`).

mod cursor;
#[cfg(test)]
mod tests;
mod undo;

pub(crate) use undo::{Reorganisation, UndoRepo};

use std::ops::RangeInclusive;

use futures::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::domain::{Boundary, Job, range_id};
use crate::store::{Store, StoreError, Tx, literal, number};

/// With more open ranges than this a source begins no new one: a head that nobody can read must not fill the store with ranges.
const MAX_OPEN: u64 = 256;
/// Tries to claim the next range; each failure means that another worker claimed one.
const CLAIM_TRIES: u32 = 100;

/// Who claims, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) worker: String,
    pub(crate) lease_ms: u64,
    pub(crate) max_attempts: u32,
}

/// How a range is released after a failure: due again after a pause, or parked.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) error: String,
    pub(crate) pause_ms: u64,
    /// Whether the attempt counts; one that failed because of a node or the store does not.
    pub(crate) counts: bool,
    pub(crate) parked: bool,
    /// Whether events are stored for it that must be deleted.
    pub(crate) exact: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    Range(Box<Job>),
    /// Every range up to the head is claimed or done.
    CaughtUp,
    /// Too many ranges are open already.
    Congested,
}

#[derive(Debug, Clone)]
pub(crate) struct RangeRepo {
    store: Store,
}

impl RangeRepo {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    fn typed(&self) -> Collection<Job> {
        self.store.collection("blockJobs")
    }

    /// Claims the lowest range that failed, is pending, or whose lease expired. One that begins above `head` is left alone: a
    /// node claimed to have its blocks and does not, and trying it would keep workers from blocks that exist.
    pub(crate) async fn claim_again(
        &self,
        source: &str,
        owner: &Owner,
        head: u64,
    ) -> Result<Option<Job>, StoreError> {
        let due = doc! { "$and": [
            { "$in": ["$status", ["failed", "pending"]] },
            { "$lte": ["$notBefore", "$$NOW"] },
        ] };
        let abandoned = doc! { "$and": [
            { "$eq": ["$status", "processing"] },
            { "$lt": ["$leaseUntil", "$$NOW"] },
        ] };
        let filter = doc! {
            "source": source,
            "open": true,
            "fromBlock": { "$lte": number(head) },
            "attempts": { "$lt": i64::from(owner.max_attempts) },
            "$expr": { "$or": [due, abandoned] },
        };
        let take = vec![doc! { "$set": {
            "status": "processing",
            "worker": literal(owner.worker.clone()),
            "fence": { "$add": ["$fence", 1_i64] },
            "attempts": { "$add": ["$attempts", 1_i64] },
            "leaseUntil": { "$add": ["$$NOW", number(owner.lease_ms)] },
            "updatedAt": "$$NOW",
        } }];
        let claimed = self
            .typed()
            .find_one_and_update(filter, take)
            .sort(doc! { "fromBlock": 1 })
            .return_document(ReturnDocument::After)
            .await?;
        Ok(claimed)
    }

    /// Claims the next range up to `head`. Inserting its job is what claims it; the cursor follows.
    pub(crate) async fn claim_next(
        &self,
        source: &str,
        owner: &Owner,
        batch: u64,
        head: u64,
    ) -> Result<ClaimOutcome, StoreError> {
        for _ in 0..CLAIM_TRIES {
            let Some(cursor) = self.cursor(source).await? else { return Ok(ClaimOutcome::CaughtUp) };
            if cursor.next_block > head || cursor.undoing.is_some() {
                return Ok(ClaimOutcome::CaughtUp);
            }
            let jobs = self.store.jobs();
            let open = jobs.count_documents(doc! { "source": source, "open": true }).limit(MAX_OPEN).await?;
            if open >= MAX_OPEN {
                return Ok(ClaimOutcome::Congested);
            }
            let from = cursor.next_block;
            let to = head.min(from.saturating_add(batch.max(1) - 1));
            let taken = self.insert(source, owner, from, to).await?;
            worker::crash_point("indexer.after_job");
            // The job is ours, or that of a worker that died before it moved the cursor. Either way the cursor moves past it.
            let end = match &taken {
                Some(job) => job.to,
                None => match self.job(source, from).await? {
                    Some(job) => job.to,
                    None => continue,
                },
            };
            let moved = doc! { "$set": { "nextBlock": number(end.saturating_add(1)) } };
            self.store.cursors().update_one(doc! { "_id": source, "nextBlock": number(from) }, moved).await?;
            if let Some(job) = taken {
                return Ok(ClaimOutcome::Range(Box::new(job)));
            }
        }
        Ok(ClaimOutcome::Congested)
    }

    /// `None` when the range exists.
    async fn insert(
        &self,
        source: &str,
        owner: &Owner,
        from: u64,
        to: u64,
    ) -> Result<Option<Job>, StoreError> {
        let id = range_id(source, from);
        // An upsert that can match nothing, because only an update can use the server's time.
        let nobody = doc! { "_id": &id, "status": { "$exists": false } };
        let new = vec![doc! { "$set": {
            "source": literal(source),
            "fromBlock": number(from),
            "toBlock": number(to),
            "status": "processing",
            "open": true,
            "fence": 1_i64,
            "attempts": 1_i64,
            "worker": literal(owner.worker.clone()),
            "leaseUntil": { "$add": ["$$NOW", number(owner.lease_ms)] },
            "before": literal(Bson::Null),
            "createdAt": "$$NOW",
            "updatedAt": "$$NOW",
        } }];
        let inserted = self
            .typed()
            .find_one_and_update(nobody, new)
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await;
        match inserted {
            Ok(job) => Ok(job),
            Err(error) if crate::store::is_duplicate_key(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn job(&self, source: &str, from: u64) -> Result<Option<Job>, StoreError> {
        Ok(self.typed().find_one(doc! { "_id": range_id(source, from) }).await?)
    }

    /// Jobs from this block on, lowest first.
    pub(crate) async fn jobs_from(
        &self,
        source: &str,
        from: u64,
        limit: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let filter = doc! { "_id": { "$gte": range_id(source, from), "$lte": range_id(source, u64::MAX) } };
        self.find(filter, doc! { "_id": 1 }, limit).await
    }

    /// Jobs that begin below this block, highest first.
    pub(crate) async fn jobs_below(
        &self,
        source: &str,
        below: u64,
        limit: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let filter = doc! { "_id": { "$gte": range_id(source, 0), "$lt": range_id(source, below) } };
        self.find(filter, doc! { "_id": -1 }, limit).await
    }

    async fn find(&self, filter: Document, sort: Document, limit: i64) -> Result<Vec<Job>, StoreError> {
        Ok(self.typed().find(filter).sort(sort).limit(limit).await?.try_collect().await?)
    }

    /// The blocks of the first range that ends at or after a time.
    pub(crate) async fn blocks_at(
        &self,
        source: &str,
        time_ms: i64,
    ) -> Result<Option<RangeInclusive<u64>>, StoreError> {
        let filter = doc! { "source": source, "toTime": { "$gte": DateTime::from_millis(time_ms) } };
        let range = self.typed().find_one(filter).sort(doc! { "toTime": 1, "_id": 1 }).await?;
        Ok(range.map(|job| job.from..=job.to))
    }

    /// The finished range that holds the event with this many events before it.
    pub(crate) async fn range_of_rank(&self, source: &str, rank: u64) -> Result<Option<Job>, StoreError> {
        let filter = doc! { "source": source, "before": { "$lte": number(rank), "$gte": 0_i64 } };
        // Ranges without events have the same number before them as the next range; the last of these holds the event.
        Ok(self.typed().find_one(filter).sort(doc! { "before": -1, "_id": -1 }).await?)
    }

    /// Extends the lease. `false` when the range is no longer ours.
    pub(crate) async fn renew(&self, job: &Job, lease_ms: u64) -> Result<bool, StoreError> {
        let longer = vec![doc! { "$set": { "leaseUntil": { "$add": ["$$NOW", number(lease_ms)] } } }];
        Ok(self.store.jobs().update_one(held(job), longer).await?.matched_count == 1)
    }

    /// Completes a range. `false` when it is no longer ours.
    pub(crate) async fn complete_in(
        &self,
        tx: &mut Tx,
        job: &Job,
        boundary: &Boundary,
    ) -> Result<bool, StoreError> {
        let time = |seconds: u64| DateTime::from_millis(number(seconds.saturating_mul(1000)));
        let done = doc! {
            "$set": {
                "status": "completed",
                "count": number(boundary.count),
                "parentHash": &boundary.parent_hash,
                "fromHash": &boundary.from_hash,
                "toHash": &boundary.to_hash,
                "fromTime": time(boundary.from_time),
                "toTime": time(boundary.to_time),
                "hashes": &boundary.hashes,
                "addressVersion": boundary.address_version,
                "error": "",
                "exact": false,
            },
            "$unset": { "open": "", "leaseUntil": "", "notBefore": "" },
            "$currentDate": { "updatedAt": true },
        };
        Ok(tx.update_one(&self.store.jobs(), held(job), done).await? == 1)
    }

    /// Releases a range after a failed attempt. `false` when it is no longer ours.
    pub(crate) async fn release(&self, job: &Job, release: &Release) -> Result<bool, StoreError> {
        let attempts = if release.counts { i64::from(job.attempts) } else { i64::from(job.attempts) - 1 };
        let change = vec![doc! { "$set": {
            "status": if release.parked { "exhausted" } else { "failed" },
            "attempts": attempts,
            // Events may have been stored before the failure, whatever the number of attempts says.
            "reopened": true,
            "exact": { "$or": ["$exact", release.exact] },
            "error": literal(release.error.as_str()),
            "notBefore": { "$add": ["$$NOW", number(release.pause_ms)] },
            "updatedAt": "$$NOW",
        } }];
        Ok(self.store.jobs().update_one(held(job), change).await?.matched_count == 1)
    }

    /// Parks ranges whose worker disappeared during the last attempt.
    pub(crate) async fn park_abandoned(&self, source: &str, max_attempts: u32) -> Result<u64, StoreError> {
        let filter = doc! {
            "source": source,
            "open": true,
            "status": { "$in": ["processing", "failed", "pending"] },
            "attempts": { "$gte": i64::from(max_attempts) },
            "$expr": { "$or": [
                { "$ne": ["$status", "processing"] },
                { "$lt": ["$leaseUntil", "$$NOW"] },
            ] },
        };
        let error = "every attempt ended without a report: the worker was killed or hung";
        let parked = vec![doc! { "$set": {
            "status": "exhausted",
            "fence": { "$add": ["$fence", 1_i64] },
            "error": { "$cond": [{ "$in": [{ "$ifNull": ["$error", ""] }, [""]] }, error, "$error"] },
            "updatedAt": "$$NOW",
        } }];
        Ok(self.store.jobs().update_many(filter, parked).await?.modified_count)
    }

    /// Shortens a range to end at `to`; the rest becomes a range of its own. `false`, without any change, when it is no longer ours.
    pub(crate) async fn shorten(&self, job: &Job, to: u64) -> Result<bool, StoreError> {
        let (jobs, rest) = (self.store.jobs(), to.saturating_add(1));
        let row = doc! {
            "source": &job.source,
            "fromBlock": number(rest),
            "toBlock": number(job.to),
            "status": "pending",
            "open": true,
            "fence": 0_i64,
            "attempts": 0_i64,
            "before": Bson::Null,
            // Events that an earlier attempt at the whole range stored may lie in either part.
            "reopened": true,
            "exact": job.exact,
        };
        let (id, cut) = (range_id(&job.source, rest), doc! { "$set": { "toBlock": number(to) } });
        let mut tx = self.store.begin().await?;
        if !tx.is_atomic() {
            if jobs.count_documents(held(job)).await? == 0 {
                return Ok(false);
            }
            // The rest is written first: a crash in between leaves blocks in two ranges, never in none.
            tx.add(&jobs, &id, row).await?;
            return Ok(tx.update_one(&jobs, held(job), cut).await? == 1);
        }
        if tx.update_one(&jobs, held(job), cut).await? == 0 {
            return Ok(false);
        }
        tx.add(&jobs, &id, row).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Parked ranges, lowest first.
    pub(crate) async fn exhausted(&self, source: &str, limit: i64) -> Result<Vec<Job>, StoreError> {
        let filter = doc! { "source": source, "open": true, "status": "exhausted" };
        self.find(filter, doc! { "fromBlock": 1 }, limit).await
    }

    /// Ranges whose last attempt failed and that are retried, lowest first.
    pub(crate) async fn retried(&self, source: &str, limit: i64) -> Result<Vec<Job>, StoreError> {
        let status = doc! { "$in": ["pending", "failed", "processing"] };
        let filter = doc! { "source": source, "open": true, "status": status, "error": { "$gt": "" } };
        self.find(filter, doc! { "fromBlock": 1 }, limit).await
    }

    /// Gives an exhausted range fresh attempts.
    pub(crate) async fn requeue(&self, source: &str, from: u64) -> Result<u64, StoreError> {
        let filter = doc! { "_id": range_id(source, from), "status": "exhausted" };
        let fresh = doc! {
            "$set": { "status": "pending", "attempts": 0_i64, "reopened": true },
            "$inc": { "fence": 1_i64 },
            "$unset": { "notBefore": "" },
        };
        Ok(self.store.jobs().update_one(filter, fresh).await?.modified_count)
    }

    /// Takes this finished range out of the ledger, to be read again. `false` when it changed meanwhile.
    pub(crate) async fn reopen_in(&self, tx: &mut Tx, job: &Job) -> Result<bool, StoreError> {
        Ok(self.reopen_all_in(tx, finished(job)).await? == 1)
    }

    async fn reopen_all_in(&self, tx: &mut Tx, filter: Document) -> Result<u64, StoreError> {
        let again = doc! {
            "$set": { "status": "pending", "open": true, "attempts": 0_i64, "reopened": true, "exact": true,
                "before": Bson::Null },
            "$inc": { "fence": 1_i64 },
            "$unset": { "notBefore": "", "leaseUntil": "" },
        };
        tx.update_many(&self.store.jobs(), filter, again).await
    }

    /// Records how many events lie before each of these ranges. `false` when one of them was reopened meanwhile; it is counted
    /// anew when it is finished again.
    pub(crate) async fn record_events_before(&self, ranges: &[(Job, u64)]) -> Result<bool, StoreError> {
        let update = |(job, before): &(Job, u64)| {
            doc! { "q": finished(job), "u": { "$set": { "before": number(*before) } } }
        };
        let updates: Vec<Document> = ranges.iter().map(update).collect();
        let matched = i32::try_from(updates.len()).unwrap_or(i32::MAX);
        let command = doc! { "update": "blockJobs", "updates": updates, "ordered": false };
        Ok(self.store.command(command).await?.get_i32("n") == Ok(matched))
    }
}

/// Matches the job while this worker has it.
fn held(job: &Job) -> Document {
    doc! { "_id": &job.id, "fence": job.fence, "status": "processing" }
}

/// Matches the job while it is the finished range that was read.
fn finished(job: &Job) -> Document {
    doc! { "_id": &job.id, "fence": job.fence, "status": "completed" }
}
