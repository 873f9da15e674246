//! The fleet: workers, and the orchestrator that keeps them alive.
//!
//! `orchestrator` is one loop that owns everything it knows; `round` looks at all workers, `start` starts what is due, `takeover`
//! finds what a predecessor left, `order` does what operators ask, `arrange` puts workers in their places, `stop` ends it all. `member` holds the rules of one worker, without I/O. [`Fleet`] is
//! what the API talks to: it reads the last view, and sends orders to the loop.

mod arrange;
pub mod file;
mod leadership;
mod member;
#[cfg(test)]
mod member_tests;
mod orchestrator;
mod order;
mod output;
mod process;
mod registry;
mod round;
pub mod spec;
mod start;
mod stop;
mod takeover;
pub mod view;
mod wishes;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use worker::WorkerId;

pub use orchestrator::{Orchestrator, OrchestratorError, Settings};
pub use order::Changes;
use order::Order;
use spec::{Mistake, Spec};
pub use view::{OrchestratorView, Status, View, WorkerView};

/// Why an order was not carried out. Nothing changed then.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("there is no worker {0}")]
    Unknown(WorkerId),
    #[error("{0} is named in the worker file; change it there and reload")]
    InFile(WorkerId),
    #[error("{0} is named in the worker file; remove it there and reload")]
    OfFile(WorkerId),
    #[error("the worker cannot be used")]
    Invalid(Vec<Mistake>),
    #[error("the worker file is refused; the old one stays")]
    File(Vec<Mistake>),
    #[error("no worker file is configured")]
    NoFile,
    #[error("this orchestrator does not lead now, so it changes nothing")]
    NotLeading,
    #[error("the wish cannot be kept")]
    Store(#[from] wishes::WishError),
    #[error("Redis does not answer")]
    Redis(#[from] worker::redis::RedisError),
    #[error("the orchestrator has stopped")]
    Stopped,
}

/// The API's end of the orchestrator. Clones share it.
#[derive(Debug, Clone)]
pub struct Fleet {
    orders: mpsc::Sender<Order>,
    view: watch::Receiver<Arc<View>>,
}

impl Fleet {
    /// Everything as it is now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Everything as it changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// One worker as it is now.
    ///
    /// # Errors
    /// When there is none of this id.
    pub fn get(&self, id: &WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.view().workers.get(id).cloned().ok_or_else(|| FleetError::Unknown(id.clone()))
    }

    /// Lets a configured worker run.
    ///
    /// # Errors
    /// When it is unknown, or we do not lead.
    pub async fn start(&self, id: WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.order(|reply| Order::Start { id, reply }).await
    }

    /// Adds a worker, or replaces one that was added, and lets it run.
    ///
    /// # Errors
    /// When it cannot be used, a file names it, or we do not lead.
    pub async fn add(&self, spec: Spec) -> Result<Arc<WorkerView>, FleetError> {
        let mistakes = spec.mistakes();
        if !mistakes.is_empty() {
            return Err(FleetError::Invalid(mistakes));
        }
        self.order(|reply| Order::Add { spec, reply }).await
    }

    /// Stops a worker and keeps it stopped.
    ///
    /// # Errors
    /// When it is unknown, or we do not lead.
    pub async fn stop(&self, id: WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.order(|reply| Order::Stop { id, reply }).await
    }

    /// Restarts a worker at once.
    ///
    /// # Errors
    /// When it is unknown, or we do not lead.
    pub async fn restart(&self, id: WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.order(|reply| Order::Restart { id, reply }).await
    }

    /// Ends a worker that was added, and forgets it.
    ///
    /// # Errors
    /// When it is unknown, a file names it, or we do not lead.
    pub async fn remove(&self, id: WorkerId) -> Result<Arc<WorkerView>, FleetError> {
        self.order(|reply| Order::Remove { id, reply }).await
    }

    /// Reads the worker file again.
    ///
    /// # Errors
    /// Every mistake in it; the old one stays then.
    pub async fn reload(&self) -> Result<Changes, FleetError> {
        let Some(path) = self.view().orchestrator.workers_file.clone() else {
            return Err(FleetError::NoFile);
        };
        let read = tokio::task::spawn_blocking(move || file::read(&path)).await;
        let specs = read.map_err(|_| FleetError::Stopped)?.map_err(FleetError::File)?;
        self.order(|reply| Order::Reload { specs, reply }).await
    }

    async fn order<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, FleetError>>) -> Order,
    ) -> Result<T, FleetError> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(order(reply)).await.map_err(|_| FleetError::Stopped)?;
        answer.await.map_err(|_| FleetError::Stopped)?
    }
}
