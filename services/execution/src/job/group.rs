//! Calls that arrive together share a transaction: under load one commit serves many, and on an idle system nobody waits.
//!
//! Owns the waiting and the answering. It never looks into a call. A group that fails as a whole is answered call by call, so
//! that one bad call spoils no other.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::JobError;

/// Calls that may wait for the next transaction.
const WAITING: usize = 1024;
/// Calls taken together.
const TOGETHER: usize = 256;

/// What one call is answered.
pub(super) type Answer<R> = Result<R, JobError>;

/// The way into a group. Clones share it; the writer ends with the last one.
#[derive(Debug)]
pub(super) struct Group<T, R> {
    incoming: mpsc::Sender<(T, oneshot::Sender<Answer<R>>)>,
}

impl<T, R> Clone for Group<T, R> {
    fn clone(&self) -> Self {
        Self { incoming: self.incoming.clone() }
    }
}

impl<T, R> Group<T, R>
where
    T: Clone + Send + Sync + 'static,
    R: Send + 'static,
{
    /// Starts the writer. `write` is one transaction over all that it is given, with one answer for each, in order.
    pub(super) fn start<F, Fut>(name: &'static str, write: F) -> Self
    where
        F: Fn(Arc<[T]>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Answer<R>>, JobError>> + Send,
    {
        let (incoming, mut waiting) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut group: Vec<(T, oneshot::Sender<Answer<R>>)> = Vec::with_capacity(TOGETHER);
            while waiting.recv_many(&mut group, TOGETHER).await > 0 {
                let (calls, answers): (Vec<T>, Vec<_>) = group.drain(..).unzip();
                let results = write_all(name, &write, calls).await;
                for (answer, result) in answers.into_iter().zip(results) {
                    // A caller that went away asks again, and finds what was done.
                    let _ = answer.send(result);
                }
            }
        });
        Self { incoming }
    }

    pub(super) async fn call(&self, call: T) -> Answer<R> {
        let (answer, told) = oneshot::channel();
        self.incoming.send((call, answer)).await.map_err(|_| JobError::Closing)?;
        told.await.map_err(|_| JobError::Closing)?
    }
}

async fn write_all<T, R, F, Fut>(name: &'static str, write: &F, calls: Vec<T>) -> Vec<Answer<R>>
where
    T: Clone,
    F: Fn(Arc<[T]>) -> Fut,
    Fut: Future<Output = Result<Vec<Answer<R>>, JobError>>,
{
    let count = calls.len();
    metrics::histogram!("bursar_execution_group_calls", "group" => name).record(count as f64);
    let calls: Arc<[T]> = calls.into();
    match write(Arc::clone(&calls)).await {
        Ok(answers) => answers,
        Err(error) if error.retry() => {
            tracing::warn!(
                group = name,
                error = rpc::error::chain(&error),
                calls = count,
                "group not written"
            );
            (0..count).map(|_| Err(JobError::Unavailable)).collect()
        }
        Err(error) if count == 1 => vec![Err(error)],
        // One of them breaks the transaction. Alone, each succeeds or fails for itself.
        Err(error) => {
            tracing::warn!(
                group = name,
                error = rpc::error::chain(&error),
                "a group broke; writing its calls alone"
            );
            let mut answers = Vec::with_capacity(count);
            for call in calls.iter() {
                let alone = write(Arc::from([call.clone()])).await;
                answers.push(alone.and_then(|mut one| one.pop().unwrap_or(Err(JobError::Conflict))));
            }
            answers
        }
    }
}
