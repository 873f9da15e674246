//! Cursors and range jobs in MongoDB.
//!
//! Every write to a job names the fence under which it was claimed; a worker whose lease ran out matches nothing. Leases and due
//! times are computed by the server (`$$NOW`).

use futures::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::domain::{Boundary, Cursor, CursorDoc, Job, JobDoc, Mode, job_id};
use crate::source::Source;
use crate::store::{Store, StoreError, Tx, literal, number};

/// Open ranges of one source beyond which no new one is begun: a head that nobody can read must not fill the store with ranges.
const MAX_OPEN: u64 = 256;
/// Tries to take the next range; each loss means that another worker took one.
const CLAIM_TRIES: u32 = 100;
/// Longest call that adds addresses. One that is not through by then, for instance because its process died, is forgotten.
const ADDING_LIMIT_MS: i64 = 600_000;

/// Who claims, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) worker: String,
    pub(crate) lease_ms: u64,
    pub(crate) max_attempts: u32,
}

/// How a range is given back: due again after a pause, or parked. An attempt that was nobody's fault but a node's does not count.
#[derive(Debug, Clone)]
pub(crate) struct GivenBack {
    pub(crate) error: String,
    pub(crate) pause_ms: u64,
    pub(crate) counts: bool,
    pub(crate) parked: bool,
    /// Whether something is stored for it that must go.
    pub(crate) exact: bool,
}

/// What a look for the next range gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimed {
    Range(Box<Job>),
    /// Everything up to the head is taken.
    CaughtUp,
    /// Too many ranges wait already.
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

    fn typed(&self) -> Collection<JobDoc> {
        self.store.collection("blockJobs")
    }

    /// Places the cursor of a new source at its start block; nothing when it is placed.
    pub(crate) async fn seed(&self, source: &Source) -> Result<(), StoreError> {
        let start = number(source.spec.start_block);
        let cursor = CursorDoc {
            source: source.name().to_owned(),
            chain_id: number(source.chain_id()),
            next_block: start,
            done_before: start,
            done_hash: None,
            epoch: 0,
            undoing: None,
            events: 0,
            head: 0,
            mode: Mode::Historical,
            indexed: false,
            sampled_at: DateTime::now(),
            sampled_block: start,
            rate: 0,
            address_version: 0,
            adding: Vec::new(),
        };
        match self.store.collection("lastBlock").insert_one(cursor).await {
            Err(error) if !crate::store::is_duplicate_key(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn cursor(&self, source: &str) -> Result<Option<Cursor>, StoreError> {
        let doc = self.store.collection::<CursorDoc>("lastBlock").find_one(doc! { "_id": source }).await?;
        Ok(doc.map(Cursor::from))
    }

    pub(crate) async fn cursors(&self) -> Result<Vec<Cursor>, StoreError> {
        let docs = self.store.collection::<CursorDoc>("lastBlock").find(doc! {}).await?;
        let docs: Vec<CursorDoc> = docs.try_collect().await?;
        Ok(docs.into_iter().map(Cursor::from).collect())
    }

    /// Notes the head and the mode, for whoever asks how far the source is. The head may go back: a node that boasted is found
    /// out, a chain is reorganised.
    pub(crate) async fn note(&self, source: &str, head: u64, mode: Mode) -> Result<(), StoreError> {
        let seen = doc! { "$set": { "head": number(head), "mode": mode.name() } };
        self.store.cursors().update_one(doc! { "_id": source }, seen).await?;
        Ok(())
    }

    /// Notes that the indexes for filters are there.
    pub(crate) async fn note_indexed(&self, source: &str) -> Result<(), StoreError> {
        self.store.cursors().update_one(doc! { "_id": source }, doc! { "$set": { "indexed": true } }).await?;
        Ok(())
    }

    /// Announces a call that adds addresses, and gives the version that they are to bear. From now on nobody takes the set that
    /// he reads for complete up to that version.
    pub(crate) async fn begin_adding(&self, source: &str) -> Result<i64, StoreError> {
        let last = doc! { "$ifNull": ["$addressCounter", 0_i64] };
        let recent = doc! { "$gt": ["$$one.at", { "$subtract": ["$$NOW", ADDING_LIMIT_MS] }] };
        let others = doc! { "$filter": {
            "input": { "$ifNull": ["$adding", []] }, "as": "one", "cond": recent,
        } };
        let announced = vec![
            doc! { "$set": { "addressCounter": { "$add": [last, 1_i64] } } },
            doc! { "$set": { "adding": { "$concatArrays": [
                others, [{ "call": "$addressCounter", "at": "$$NOW" }],
            ] } } },
        ];
        let cursors = self.store.cursors();
        let cursor = cursors.find_one_and_update(doc! { "_id": source }, announced);
        let cursor = cursor.return_document(ReturnDocument::After).await?;
        cursor
            .and_then(|cursor| cursor.get_i64("addressCounter").ok())
            .ok_or_else(|| StoreError::Damaged(format!("the cursor of source {source}")))
    }

    /// Ends such a call under a version above all others, and gives the first block that is complete only with its addresses:
    /// both in one write, so the run cannot pass a range that was read without them. `None` when the call took too long.
    pub(crate) async fn end_adding(&self, source: &str, call: i64) -> Result<Option<u64>, StoreError> {
        let others = doc! { "$filter": {
            "input": "$adding", "as": "one", "cond": { "$ne": ["$$one.call", call] },
        } };
        let ended = vec![
            doc! { "$set": { "addressCounter": { "$add": ["$addressCounter", 1_i64] } } },
            doc! { "$set": { "addressVersion": "$addressCounter", "adding": others } },
        ];
        let same = doc! { "_id": source, "adding.call": call };
        let cursors = self.store.cursors();
        let cursor = cursors.find_one_and_update(same, ended).return_document(ReturnDocument::After).await?;
        Ok(cursor.and_then(|cursor| cursor.get_i64("doneBefore").ok()).map(crate::store::block))
    }

    /// A range that failed, waits, or whose owner's lease ran out; the lowest first. One that begins above `head` is left alone:
    /// somebody boasted of its blocks, and trying it would keep workers from what is there.
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
        let taken = self
            .typed()
            .find_one_and_update(filter, take)
            .sort(doc! { "fromBlock": 1 })
            .return_document(ReturnDocument::After)
            .await?;
        Ok(taken.map(Job::from))
    }

    /// The next range up to `head`. Inserting its job is what takes it; the cursor follows.
    pub(crate) async fn claim_next(
        &self,
        source: &str,
        owner: &Owner,
        batch: u64,
        head: u64,
    ) -> Result<Claimed, StoreError> {
        for _ in 0..CLAIM_TRIES {
            let Some(cursor) = self.cursor(source).await? else { return Ok(Claimed::CaughtUp) };
            if cursor.next_block > head || cursor.undoing.is_some() {
                return Ok(Claimed::CaughtUp);
            }
            let jobs = self.store.jobs();
            let open = jobs.count_documents(doc! { "source": source, "open": true }).limit(MAX_OPEN).await?;
            if open >= MAX_OPEN {
                return Ok(Claimed::Congested);
            }
            let from = cursor.next_block;
            let to = head.min(from.saturating_add(batch.max(1) - 1));
            let taken = self.insert(source, owner, from, to).await?;
            worker::crash_point("indexer.after_job");
            // Ours, or that of a worker who died before it moved the cursor: either way the cursor goes behind it.
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
                return Ok(Claimed::Range(Box::new(job)));
            }
        }
        Ok(Claimed::Congested)
    }

    /// `None` when somebody has that range.
    async fn insert(
        &self,
        source: &str,
        owner: &Owner,
        from: u64,
        to: u64,
    ) -> Result<Option<Job>, StoreError> {
        let id = job_id(source, from);
        // An upsert that can match nothing: only an update can ask the server for its time.
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
            "before": literal(mongodb::bson::Bson::Null),
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
            Ok(job) => Ok(job.map(Job::from)),
            Err(error) if crate::store::is_duplicate_key(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn job(&self, source: &str, from: u64) -> Result<Option<Job>, StoreError> {
        Ok(self.typed().find_one(doc! { "_id": job_id(source, from) }).await?.map(Job::from))
    }

    /// Jobs from this block on, lowest first.
    pub(crate) async fn jobs_from(
        &self,
        source: &str,
        from: u64,
        limit: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let filter = doc! { "_id": { "$gte": job_id(source, from), "$lte": job_id(source, u64::MAX) } };
        let jobs = self.typed().find(filter).sort(doc! { "_id": 1 }).limit(limit).await?;
        let jobs: Vec<JobDoc> = jobs.try_collect().await?;
        Ok(jobs.into_iter().map(Job::from).collect())
    }

    /// Jobs that begin below this block, highest first.
    pub(crate) async fn jobs_below(
        &self,
        source: &str,
        below: u64,
        limit: i64,
    ) -> Result<Vec<Job>, StoreError> {
        let filter = doc! { "_id": { "$gte": job_id(source, 0), "$lt": job_id(source, below) } };
        let jobs = self.typed().find(filter).sort(doc! { "_id": -1 }).limit(limit).await?;
        let jobs: Vec<JobDoc> = jobs.try_collect().await?;
        Ok(jobs.into_iter().map(Job::from).collect())
    }

    /// Holds on to a range. `false` when it is no longer ours.
    pub(crate) async fn renew(&self, job: &Job, lease_ms: u64) -> Result<bool, StoreError> {
        let longer = vec![doc! { "$set": { "leaseUntil": { "$add": ["$$NOW", number(lease_ms)] } } }];
        Ok(self.store.jobs().update_one(held(job), longer).await?.matched_count == 1)
    }

    /// Ends a range in the ledger, within `tx`. `false` when it is no longer ours.
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

    /// Gives a range back after a failed attempt. `false` when it is no longer ours.
    pub(crate) async fn give_back(&self, job: &Job, back: &GivenBack) -> Result<bool, StoreError> {
        let attempts = if back.counts { i64::from(job.attempts) } else { i64::from(job.attempts) - 1 };
        let change = vec![doc! { "$set": {
            "status": if back.parked { "exhausted" } else { "failed" },
            "attempts": attempts,
            // What was stored before the failure is there, whatever the count of attempts says.
            "reopened": true,
            "exact": { "$or": ["$exact", back.exact] },
            "error": literal(back.error.as_str()),
            "notBefore": { "$add": ["$$NOW", number(back.pause_ms)] },
            "updatedAt": "$$NOW",
        } }];
        Ok(self.store.jobs().update_one(held(job), change).await?.matched_count == 1)
    }

    /// Parks ranges whose owner vanished on the last attempt.
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
        let error = "every attempt ended without a word: the worker was killed or hung";
        let parked = vec![doc! { "$set": {
            "status": "exhausted",
            "fence": { "$add": ["$fence", 1_i64] },
            "error": { "$cond": [{ "$in": [{ "$ifNull": ["$error", ""] }, [""]] }, error, "$error"] },
            "updatedAt": "$$NOW",
        } }];
        Ok(self.store.jobs().update_many(filter, parked).await?.modified_count)
    }

    /// Cuts a range behind `to`: the rest becomes a range of its own. `false` when it is no longer ours; then nothing changed.
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
            "before": mongodb::bson::Bson::Null,
            // Whatever an earlier reading of the whole left behind may lie in either part.
            "reopened": true,
            "exact": job.exact,
        };
        let (id, cut) = (job_id(&job.source, rest), doc! { "$set": { "toBlock": number(to) } });
        let mut tx = self.store.begin().await?;
        if !tx.is_atomic() {
            if jobs.count_documents(held(job)).await? == 0 {
                return Ok(false);
            }
            // First the rest, then the cut: a crash in between leaves blocks in two ranges, never in none.
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

    /// Ranges that need a person, lowest first.
    pub(crate) async fn exhausted(&self, source: &str, limit: i64) -> Result<Vec<Job>, StoreError> {
        self.open_ranges(doc! { "source": source, "open": true, "status": "exhausted" }, limit).await
    }

    /// Ranges whose last try failed and that are tried again, lowest first.
    pub(crate) async fn retried(&self, source: &str, limit: i64) -> Result<Vec<Job>, StoreError> {
        let status = doc! { "$in": ["pending", "failed", "processing"] };
        let filter = doc! { "source": source, "open": true, "status": status, "error": { "$gt": "" } };
        self.open_ranges(filter, limit).await
    }

    async fn open_ranges(&self, filter: Document, limit: i64) -> Result<Vec<Job>, StoreError> {
        let jobs = self.typed().find(filter).sort(doc! { "fromBlock": 1 }).limit(limit).await?;
        let jobs: Vec<JobDoc> = jobs.try_collect().await?;
        Ok(jobs.into_iter().map(Job::from).collect())
    }

    /// Gives an exhausted range fresh attempts.
    pub(crate) async fn requeue(&self, source: &str, from: u64) -> Result<u64, StoreError> {
        let filter = doc! { "_id": job_id(source, from), "status": "exhausted" };
        let fresh = doc! {
            "$set": { "status": "pending", "attempts": 0_i64, "reopened": true },
            "$inc": { "fence": 1_i64 },
            "$unset": { "notBefore": "" },
        };
        Ok(self.store.jobs().update_one(filter, fresh).await?.modified_count)
    }

    /// Takes a finished range out of the ledger, to be read again.
    pub(crate) async fn reopen_in(&self, tx: &mut Tx, filter: Document) -> Result<u64, StoreError> {
        let again = doc! {
            "$set": { "status": "pending", "open": true, "attempts": 0_i64, "reopened": true, "exact": true,
                "before": mongodb::bson::Bson::Null },
            "$inc": { "fence": 1_i64 },
            "$unset": { "notBefore": "", "leaseUntil": "" },
        };
        tx.update_many(&self.store.jobs(), filter, again).await
    }
}

/// The job while it is in this owner's hands.
fn held(job: &Job) -> Document {
    doc! { "_id": &job.id, "fence": job.fence, "status": "processing" }
}

#[cfg(test)]
#[path = "repo_tests.rs"]
mod tests;
