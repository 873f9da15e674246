//! The queues of execution. A queue is one file that implements [`QueueKind`], and one line in [`REGISTERED`].
//!
//! Claim, price, reserve, sign, persist, send and confirm are the same for every queue (`engine`). What differs is here: which
//! wallets pay, what the transaction does, what allows the signer to sign it, how often it is retried, and who hears about it.
//! The `work` command, the configuration keys `workers.NAME` and `retry.NAME`, worker loops, counters, gauges and the names that
//! the database may hold follow from the registration.
//!
//! Invariant: a name that is not registered is refused when it is read; it never becomes another queue.

mod withdrawal;

use std::fmt;
use std::str::FromStr;

use payment::Action;
use proto::execution::v1 as pb;
use proto::signer::v1::authorization;
use types::{Backoff, ChainName};

use crate::job::Job;
use crate::outbox::JobMessage;
use crate::signer::Incomplete;
use crate::wallet::WalletRole;

/// What a queue does its own way.
pub trait QueueKind: fmt::Debug + Sync {
    /// The wallets that pay its jobs.
    fn payer_role(&self) -> WalletRole;

    /// What the transaction of a job does; none while no wallet pays it.
    fn action(&self, job: &Job) -> Option<Action>;

    /// What allows the signer to sign it.
    fn authorization(&self, job: &Job) -> Result<authorization::Kind, Incomplete>;

    /// When a counted try is repeated, unless `retry.NAME` says otherwise.
    fn retries(&self) -> Backoff;

    /// The message about news of a job, if anybody is to hear it.
    fn message(&self, job: &Job, news: JobNews<'_>) -> Option<JobMessage>;
}

/// What others may want to know of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobNews<'a> {
    Blocked { reason: &'a str },
    Unblocked,
    Failed { reason: &'a str },
}

/// One line of the registration.
#[derive(Debug)]
struct Registration {
    name: &'static str,
    contract: pb::Queue,
    /// None: the contract names the queue, and no worker serves it yet.
    kind: Option<&'static dyn QueueKind>,
}

static REGISTERED: [Registration; 3] = [
    Registration {
        name: "withdrawal",
        contract: pb::Queue::Withdrawal,
        kind: Some(&withdrawal::Withdrawals),
    },
    Registration { name: "consolidation", contract: pb::Queue::Consolidation, kind: None },
    Registration { name: "gas", contract: pb::Queue::Gas, kind: None },
];

/// A registered queue: its place in the registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobQueue(usize);

impl JobQueue {
    /// Named, because fillers are worked on there and withdrawals have calls of their own.
    pub const WITHDRAWAL: Self = Self(0);

    pub fn all() -> impl Iterator<Item = Self> {
        (0..REGISTERED.len()).map(Self)
    }

    /// Those that workers serve.
    pub fn worked() -> impl Iterator<Item = (Self, &'static dyn QueueKind)> {
        Self::all().filter_map(|queue| Some((queue, queue.kind()?)))
    }

    pub fn name(self) -> &'static str {
        REGISTERED[self.0].name
    }

    pub fn kind(self) -> Option<&'static dyn QueueKind> {
        REGISTERED[self.0].kind
    }

    pub fn contract(self) -> pb::Queue {
        REGISTERED[self.0].contract
    }

    pub fn of_contract(contract: pb::Queue) -> Option<Self> {
        Self::all().find(|queue| queue.contract() == contract)
    }

    /// The queue of one chain: what workers claim from and wait on.
    pub fn on(self, chain: &ChainName) -> db::Queue {
        db::Queue::new(format!("{}/{chain}", self.name()))
    }
}

impl fmt::Display for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a registered queue")]
pub struct UnknownQueue(String);

impl FromStr for JobQueue {
    type Err = UnknownQueue;

    fn from_str(text: &str) -> Result<Self, UnknownQueue> {
        Self::all().find(|queue| queue.name() == text).ok_or_else(|| UnknownQueue(text.to_owned()))
    }
}

/// The message of a job's queue about news of it.
pub(crate) fn message(job: &Job, news: JobNews<'_>) -> Option<JobMessage> {
    job.queue.kind()?.message(job, news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_of_the_contract_is_registered_once_and_names_fit_the_database() {
        let mut names: Vec<&str> = JobQueue::all().map(JobQueue::name).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REGISTERED.len());
        for contract in [pb::Queue::Withdrawal, pb::Queue::Consolidation, pb::Queue::Gas] {
            let queue = JobQueue::of_contract(contract).expect("registered");
            assert_eq!(queue.name().parse(), Ok(queue));
        }
        assert_eq!(JobQueue::WITHDRAWAL.name(), "withdrawal");
        assert_eq!(JobQueue::of_contract(pb::Queue::Unspecified), None);
        assert!("refund".parse::<JobQueue>().is_err());
    }
}
