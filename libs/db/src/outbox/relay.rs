//! The relay: takes lanes, delivers their messages outside any transaction, and writes down the result.
//!
//! Owns the rhythm and the retry rule. Several relays may run side by side; a lane is leased to one of them at a time, and
//! one that lost its lease cannot acknowledge.
//!
//! Each receiver has loops of its own, which take its lanes and no others: one that hangs holds up nobody else's messages. Only a
//! refusal parks a lane. What failed for any other reason is tried for as long as it takes, at the longest pause in the end:
//! how long a receiver is away is not the message's fault.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::future::join_all;
use sqlx::PgPool;
use telemetry::crash_point_of;
use telemetry::propagation::{self, TraceContext};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use types::Backoff;
use uuid::Uuid;

use super::lane::{self, Failure, Lane, LaneClaim, Outcome};
use super::{OutboxError, TOPIC, parked};
use crate::scan::{Scan, Start};
use crate::wake::{Wake, Waker};

/// A failed write of results is tried this often before the lanes are left to their leases, and then delivered again.
const SETTLE_TRIES: u32 = 4;
const SETTLE_PAUSE: Duration = Duration::from_millis(25);
/// How long a relay waits after its database failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
const GAUGES_EVERY: Duration = Duration::from_secs(10);

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Grows within an aggregate.
    pub id: i64,
    /// The same at every delivery: what the receiver recognises a repetition by.
    pub message_id: Uuid,
    pub aggregate: String,
    pub topic: String,
    pub payload: Vec<u8>,
    pub trace: TraceContext,
    pub created_at: DateTime<Utc>,
    /// Failed deliveries of its lane's head when the lane was taken.
    pub tries: u32,
}

/// Why a delivery failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Not now, or nobody knows: the receiver is away, slow or overloaded. Delivered again.
    #[error("not delivered: {0}")]
    Transient(String),
    /// Refused, and it would be refused again: parked at once.
    #[error("refused: {0}")]
    Permanent(String),
}

/// The outside edge: brings one message to its receiver. `Ok` is the receiver's acknowledgement.
pub trait Deliver: Send + Sync + 'static {
    /// Who there is to deliver to: the first words of topics, up to the dot. Messages with any other are delivered too, with
    /// those of the first.
    const RECEIVERS: &'static [&'static str];

    fn deliver(&self, delivery: &Delivery) -> impl Future<Output = Result<(), DeliveryError>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayConfig {
    /// Lanes taken at once.
    pub batch: u32,
    /// Messages of one lane delivered one after the other before it is given back.
    pub messages_per_lane: u32,
    /// Lanes of one loop delivered at the same time.
    pub concurrency: usize,
    /// Loops side by side for each receiver, so that a slow answer does not hold up what comes after it.
    pub loops: usize,
    /// How long a lane is held without a word. Must be well above `delivery_timeout`.
    pub lease: Duration,
    /// A delivery that takes longer counts as a failed try, and is made again.
    pub delivery_timeout: Duration,
    /// The pause after the first failed try. It doubles with each further one,
    pub pause: Duration,
    /// up to this.
    pub longest_pause: Duration,
    /// The longest sleep.
    pub longest_wait: Duration,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            batch: 256,
            messages_per_lane: 16,
            concurrency: 64,
            loops: 2,
            lease: Duration::from_secs(60),
            delivery_timeout: Duration::from_secs(10),
            pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
            longest_wait: Duration::from_secs(10),
        }
    }
}

/// What one tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayTick {
    pub lanes: usize,
    pub delivered: usize,
    pub retried: usize,
    pub parked: usize,
    /// Lanes that another relay took over before the result could be written: their messages are delivered again.
    pub lost: usize,
}

#[derive(Debug)]
pub struct Relay<D> {
    pool: PgPool,
    deliver: Arc<D>,
    config: RelayConfig,
    stopping: CancellationToken,
    shares: Vec<Share>,
}

/// One receiver's part of the work.
#[derive(Debug)]
struct Share {
    receiver: &'static str,
    place: Mutex<(Scan, DateTime<Utc>)>,
}

impl<D: Deliver> Relay<D> {
    #[must_use]
    pub fn new(pool: PgPool, deliver: D, config: RelayConfig) -> Self {
        let share = |receiver: &&'static str| Share {
            receiver,
            place: Mutex::new((Scan::new(), DateTime::UNIX_EPOCH)),
        };
        let shares = D::RECEIVERS.iter().map(share).collect();
        Self { pool, deliver: Arc::new(deliver), config, stopping: CancellationToken::new(), shares }
    }

    /// Delivers until told to stop; deliveries under way are finished then.
    pub async fn run(&self, waker: &Waker, shutdown: CancellationToken) {
        let each = self.shares.iter().flat_map(|share| vec![share; self.config.loops.max(1)]);
        let loops = join_all(each.map(|share| self.run_loop(share, waker)));
        let stop = async {
            shutdown.cancelled().await;
            self.stopping.cancel();
        };
        tokio::join!(loops, stop, self.stopping.run_until_cancelled(self.keep_gauges()));
    }

    async fn run_loop(&self, share: &Share, waker: &Waker) {
        let mut subscription = waker.subscribe(TOPIC);
        while !self.stopping.is_cancelled() {
            match self.tick_share(share).await {
                Ok(tick) if tick.lanes > 0 => subscription.found_work(),
                Ok(_) => {
                    let mut longest = self.config.longest_wait;
                    // Asked from the head of the index, past all that was delivered lately: only for a real sleep.
                    if !subscription.next_wait_is_short()
                        && let Ok(Some(next)) = lane::next_due(&self.pool, share.receiver).await
                    {
                        longest = longest.min(next);
                    }
                    let wake = self.stopping.run_until_cancelled(subscription.wait(longest)).await;
                    if matches!(wake, None | Some(Wake::Closed)) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the outbox relay failed; going on"
                    );
                    self.stopping.run_until_cancelled(tokio::time::sleep(FAILED_PAUSE)).await;
                }
            }
        }
    }

    async fn keep_gauges(&self) {
        loop {
            // Lanes from before lanes named their receivers, or of a binary that does not yet, or of nobody.
            if let Err(error) = lane::adopt(&self.pool, D::RECEIVERS).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot look for strays");
            }
            match parked::depth(&self.pool).await {
                Ok(depth) => depth.record(),
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot count the outbox");
                }
            }
            tokio::time::sleep(GAUGES_EVERY).await;
        }
    }

    /// Takes a batch of due lanes of each receiver in turn, delivers, and writes down the results as they come.
    pub async fn tick(&self) -> Result<RelayTick, OutboxError> {
        let mut total = RelayTick::default();
        for share in &self.shares {
            total.add(self.tick_share(share).await?);
        }
        Ok(total)
    }

    async fn tick_share(&self, share: &Share) -> Result<RelayTick, OutboxError> {
        let began = Instant::now();
        let lanes = self.claim(share).await?;
        let mut tick = RelayTick { lanes: lanes.len(), ..RelayTick::default() };
        let mut waiting = lanes.into_iter();
        let mut running: JoinSet<Outcome> = JoinSet::new();
        loop {
            for lane in waiting.by_ref().take(self.config.concurrency.max(1).saturating_sub(running.len())) {
                running.spawn(self.lane_run(began).deliver(lane));
            }
            let Some(first) = running.join_next().await else { return Ok(tick) };
            let mut finished = vec![first];
            // What finished meanwhile shares the commit.
            while let Some(more) = running.try_join_next() {
                finished.push(more);
            }
            let outcomes: Vec<Outcome> = finished
                .into_iter()
                // A panic in somebody's `deliver` must not end the relay; that lane comes back when its lease ends.
                .filter_map(|joined| {
                    joined.inspect_err(|error| tracing::error!(%error, "a delivery broke down")).ok()
                })
                .collect();
            self.settle(&outcomes, &mut tick).await?;
        }
    }

    async fn claim(&self, share: &Share) -> Result<Vec<Lane>, OutboxError> {
        let first = share.with_place(|(scan, _)| scan.start(Instant::now()));
        let mut lanes = self.claim_once(share, self.config.batch, first).await?;
        let room = self.config.batch.saturating_sub(u32::try_from(lanes.len()).unwrap_or(u32::MAX));
        // With room to spare, look for stragglers too.
        if first == Start::LastPlace && room > 0 {
            let second = share.with_place(|(scan, _)| scan.start(Instant::now()));
            if second == Start::Head {
                lanes.extend(self.claim_once(share, room, second).await?);
            }
        }
        Ok(lanes)
    }

    async fn claim_once(&self, share: &Share, batch: u32, start: Start) -> Result<Vec<Lane>, OutboxError> {
        let began = Instant::now();
        let from = match start {
            Start::Head => DateTime::UNIX_EPOCH,
            Start::LastPlace => share.with_place(|(_, place)| *place),
        };
        let request = LaneClaim {
            receiver: share.receiver,
            start: from,
            lanes: batch,
            messages_per_lane: self.config.messages_per_lane.max(1),
            lease: self.config.lease,
        };
        let (lanes, reached) = lane::claim(&self.pool, request).await?;
        let short = lanes.len() < usize::try_from(batch).unwrap_or(usize::MAX);
        share.with_place(|(scan, place)| {
            scan.note(start, began, short);
            *place = reached.unwrap_or(*place);
        });
        Ok(lanes)
    }

    fn lane_run(&self, began: Instant) -> LaneRun<D> {
        // The last moment to begin a delivery that surely ends within the lease. Counted from before the lease was asked
        // for, so it errs on the early side; the database decides in the end.
        let slack = self.config.lease.saturating_sub(self.config.delivery_timeout);
        LaneRun {
            deliver: Arc::clone(&self.deliver),
            stopping: self.stopping.clone(),
            timeout: self.config.delivery_timeout,
            pauses: Backoff {
                base: self.config.pause,
                cap: Some(self.config.longest_pause),
                max_tries: u32::MAX,
            },
            begin_before: began + slack,
        }
    }

    async fn settle(&self, outcomes: &[Outcome], tick: &mut RelayTick) -> Result<(), OutboxError> {
        if outcomes.is_empty() {
            return Ok(());
        }
        let mut tries = 0;
        let held = loop {
            match lane::settle(&self.pool, outcomes).await {
                Ok(held) => break held,
                Err(error) if error.is_transient() && tries < SETTLE_TRIES => {
                    tokio::time::sleep(SETTLE_PAUSE * 2u32.pow(tries)).await;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        for (outcome, held) in outcomes.iter().zip(held) {
            if held {
                tick.count(outcome);
            } else {
                tick.lost += 1;
                tracing::warn!(aggregate = %outcome.aggregate, "another relay took the lane over; delivered twice");
            }
        }
        Ok(())
    }
}

impl Share {
    fn with_place<T>(&self, look: impl FnOnce(&mut (Scan, DateTime<Utc>)) -> T) -> T {
        // Hints only: a panic elsewhere leaves nothing here that could mislead.
        look(&mut self.place.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RelayTick {
    fn add(&mut self, other: Self) {
        self.lanes += other.lanes;
        self.delivered += other.delivered;
        self.retried += other.retried;
        self.parked += other.parked;
        self.lost += other.lost;
    }

    fn count(&mut self, outcome: &Outcome) {
        self.delivered += outcome.acked.len();
        metrics::counter!("bursar_outbox_delivered_messages_total").increment(outcome.acked.len() as u64);
        match &outcome.failure {
            None => {}
            Some(Failure { retry_in: Some(delay), reason }) => {
                self.retried += 1;
                metrics::counter!("bursar_outbox_failed_deliveries_total").increment(1);
                tracing::warn!(aggregate = %outcome.aggregate, tries = outcome.tries, ?delay, reason, "not delivered; will retry");
            }
            Some(Failure { retry_in: None, reason }) => {
                self.parked += 1;
                metrics::counter!("bursar_outbox_parked_messages_total").increment(1);
                tracing::error!(aggregate = %outcome.aggregate, tries = outcome.tries, reason, "message parked");
            }
        }
    }
}

/// What the delivery of one lane needs to know.
struct LaneRun<D> {
    deliver: Arc<D>,
    stopping: CancellationToken,
    timeout: Duration,
    pauses: Backoff,
    begin_before: Instant,
}

impl<D: Deliver> LaneRun<D> {
    async fn deliver(self, lane: Lane) -> Outcome {
        let Lane { aggregate, token, last_id, tries, messages } = lane;
        let mut outcome = Outcome { aggregate, token, acked: Vec::new(), done_to: 0, tries, failure: None };
        if messages.is_empty() {
            outcome.done_to = last_id;
        }
        for message in &messages {
            if self.stopping.is_cancelled() || Instant::now() >= self.begin_before {
                break;
            }
            crash_point_of("outbox.before_delivery", &message.topic);
            match self.deliver_one(message).await {
                Ok(()) => {
                    crash_point_of("outbox.after_delivery", &message.topic);
                    outcome.acked.push(message.message_id);
                    outcome.done_to = message.id;
                    outcome.tries = 0;
                }
                Err(error) => {
                    outcome.tries = outcome.tries.saturating_add(1);
                    outcome.failure = Some(self.judge(&error, outcome.tries));
                    break;
                }
            }
        }
        outcome
    }

    async fn deliver_one(&self, message: &Delivery) -> Result<(), DeliveryError> {
        let span = tracing::info_span!(
            "outbox.deliver",
            topic = %message.topic,
            aggregate = %message.aggregate,
            message_id = %message.message_id,
        );
        propagation::attach(&message.trace, &span);
        match tokio::time::timeout(self.timeout, self.deliver.deliver(message)).instrument(span).await {
            Ok(result) => result,
            Err(_) => {
                Err(DeliveryError::Transient(format!("no answer within {} ms", self.timeout.as_millis())))
            }
        }
    }

    fn judge(&self, error: &DeliveryError, tries: u32) -> Failure {
        let retry_in = match error {
            DeliveryError::Permanent(_) => None,
            DeliveryError::Transient(_) => Some(self.pauses.delay(tries.saturating_sub(1))),
        };
        Failure { reason: error.to_string(), retry_in }
    }
}
