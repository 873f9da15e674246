//! Writes requests that arrive at the same time in one transaction: under load one commit serves many callers, and on an idle
//! system nobody waits.
//!
//! A service gives [`BatchWriter::start`] a function that writes a batch. **The service's function for a single request is the
//! truth**: the batch function must return and store exactly what the requests would have returned and stored one after the
//! other, in their order. Either it calls the single function for each request inside its transaction, or a property test
//! (`testkit::same_outcome`) proves the two equal over random batches.
//!
//! Owns the waiting and the replies; it never looks into a request. If a batch fails as a whole, its requests are written one by
//! one, so that a bad request does not harm the others. While the database is away no request is tried twice. A request that
//! makes the function panic also fails alone, because without the writer's task no caller would ever get a reply again.
//!
//! Invariant: a caller gets its reply after the transaction with its request has ended, and never another request's result.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the next transaction.
const QUEUE_SIZE: usize = 1024;
const MAX_BATCH: usize = 256;

/// What the writer has to know about the errors of requests.
pub trait BatchError: Error + Send + Sync + Sized + 'static {
    /// Whether the same request may succeed later without anybody changing anything.
    fn retry(&self) -> bool;

    /// The error that asks the caller to retry: for requests whose batch met a failure of the database, that made the batch
    /// function panic, or that came while the writer was closing.
    fn not_now() -> Self;
}

type Waiting<T, R, E> = (T, oneshot::Sender<Result<R, E>>);

/// A handle of the writer. Clones share the writer, which ends with the last of them.
pub struct BatchWriter<T, R, E> {
    incoming: mpsc::Sender<Waiting<T, R, E>>,
}

impl<T, R, E> Clone for BatchWriter<T, R, E> {
    fn clone(&self) -> Self {
        Self { incoming: self.incoming.clone() }
    }
}

impl<T, R, E> fmt::Debug for BatchWriter<T, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchWriter")
    }
}

impl<T, R, E> BatchWriter<T, R, E>
where
    T: Clone + Send + Sync + 'static,
    R: Send + 'static,
    E: BatchError,
{
    /// Starts the writer; call it inside a Tokio runtime. `write` writes all that it is given in one transaction, and returns
    /// one result for each request, in order.
    #[must_use]
    pub fn start<F, Fut>(name: &'static str, write: F) -> Self
    where
        F: Fn(Arc<[T]>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Result<R, E>>, E>> + Send,
    {
        let (incoming, mut waiting) = mpsc::channel::<Waiting<T, R, E>>(QUEUE_SIZE);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(MAX_BATCH);
            while waiting.recv_many(&mut batch, MAX_BATCH).await > 0 {
                let (requests, replies): (Vec<T>, Vec<_>) = batch.drain(..).unzip();
                let results = write_all(name, &write, requests).await;
                for (reply, result) in replies.into_iter().zip(results) {
                    // A caller that went away will retry, and then finds what was done.
                    let _ = reply.send(result);
                }
            }
        });
        Self { incoming }
    }

    /// Writes a request and waits until its transaction has ended.
    ///
    /// # Errors
    /// What became of this request alone.
    pub async fn call(&self, request: T) -> Result<R, E> {
        let (reply, result) = oneshot::channel();
        self.incoming.send((request, reply)).await.map_err(|_| E::not_now())?;
        result.await.map_err(|_| E::not_now())?
    }
}

async fn write_all<T, R, E, F, Fut>(name: &'static str, write: &F, requests: Vec<T>) -> Vec<Result<R, E>>
where
    T: Clone,
    E: BatchError,
    F: Fn(Arc<[T]>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<R, E>>, E>>,
{
    let count = requests.len();
    metrics::histogram!("bursar_group_calls", "group" => name).record(count as f64);
    let requests: Arc<[T]> = requests.into();
    match attempt(name, write, Arc::clone(&requests)).await {
        Ok(Ok(results)) => return results,
        Ok(Err(error)) if count == 1 => return vec![Err(error)],
        Ok(Err(error)) if error.retry() => {
            tracing::warn!(group = name, error = &error as &dyn Error, calls = count, "batch not written");
            return (0..count).map(|_| Err(E::not_now())).collect();
        }
        Ok(Err(error)) => {
            tracing::warn!(
                group = name,
                error = &error as &dyn Error,
                calls = count,
                "batch refused; its requests are written one by one"
            );
        }
        Err(Panicked) if count == 1 => return vec![Err(E::not_now())],
        Err(Panicked) => {}
    }
    // One of the requests breaks the transaction. Alone, each succeeds or fails for itself.
    let mut results = Vec::with_capacity(count);
    for request in requests.iter() {
        let alone = attempt(name, write, Arc::from([request.clone()])).await;
        let alone = alone.unwrap_or_else(|Panicked| Err(E::not_now()));
        results.push(alone.and_then(|mut one| one.pop().unwrap_or_else(|| Err(E::not_now()))));
    }
    results
}

/// The batch function panicked. What it had begun is rolled back with its transaction.
struct Panicked;

async fn attempt<T, R, E, F, Fut>(
    name: &'static str,
    write: &F,
    requests: Arc<[T]>,
) -> Result<Result<Vec<Result<R, E>>, E>, Panicked>
where
    F: Fn(Arc<[T]>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<R, E>>, E>>,
{
    let count = requests.len();
    // A write leaves nothing behind outside the database, so a panic cannot leave anything half changed.
    AssertUnwindSafe(write(requests)).catch_unwind().await.map_err(|_| {
        tracing::error!(group = name, calls = count, "the writer of a batch panicked; going on");
        Panicked
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::*;

    #[derive(Debug, PartialEq, Eq, thiserror::Error)]
    enum Trouble {
        #[error("away")]
        Away,
        #[error("bad request")]
        Bad,
    }

    impl BatchError for Trouble {
        fn retry(&self) -> bool {
            *self == Trouble::Away
        }

        fn not_now() -> Self {
            Trouble::Away
        }
    }

    /// Doubles numbers and records the batches it was given. The gate holds it back until all requests wait.
    fn doubling(gate: Arc<Semaphore>, seen: Arc<Mutex<Vec<Vec<u32>>>>) -> BatchWriter<u32, u32, Trouble> {
        BatchWriter::start("test", move |requests: Arc<[u32]>| {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            async move {
                gate.acquire().await.expect("never closed").forget();
                gate.add_permits(1);
                seen.lock().expect("not poisoned").push(requests.to_vec());
                match requests.iter().find(|number| **number >= 100) {
                    Some(300) => panic!("a request that nobody thought of"),
                    Some(200) => Err(Trouble::Away),
                    Some(_) => Err(Trouble::Bad),
                    None => Ok(requests.iter().map(|number| Ok(number * 2)).collect()),
                }
            }
        })
    }

    async fn write(numbers: &[u32]) -> (Vec<Result<u32, Trouble>>, Vec<Vec<u32>>) {
        let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let writer = doubling(Arc::clone(&gate), Arc::clone(&seen));
        let requests: Vec<_> = numbers
            .iter()
            .map(|number| {
                let (writer, number) = (writer.clone(), *number);
                tokio::spawn(async move { writer.call(number).await })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.add_permits(1);
        let mut results = Vec::new();
        for request in requests {
            results.push(request.await.expect("no panic"));
        }
        let seen = seen.lock().expect("not poisoned").clone();
        (results, seen)
    }

    #[tokio::test]
    async fn requests_that_wait_together_are_written_together() {
        let (results, seen) = write(&[1, 2, 3, 4]).await;
        assert_eq!(results, [Ok(2), Ok(4), Ok(6), Ok(8)]);
        assert!(seen.len() <= 2, "{seen:?}");
    }

    #[tokio::test]
    async fn a_bad_request_harms_no_other() {
        let (results, _) = write(&[1, 100, 3]).await;
        assert_eq!(results, [Ok(2), Err(Trouble::Bad), Ok(6)]);
    }

    #[tokio::test]
    async fn a_request_that_breaks_the_writer_is_refused_alone_and_the_writer_goes_on() {
        let (gate, seen) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(Vec::new())));
        let writer = doubling(gate, seen);
        let (one, bad, three) = tokio::join!(writer.call(1), writer.call(300), writer.call(3));
        assert_eq!((one, bad, three), (Ok(2), Err(Trouble::Away), Ok(6)));
        assert_eq!(writer.call(300).await, Err(Trouble::Away), "alone from the start");
        assert_eq!(writer.call(4).await, Ok(8));
    }

    #[tokio::test]
    async fn while_the_database_is_away_no_request_is_tried_twice() {
        let (results, seen) = write(&[200, 200, 200]).await;
        assert!(results.iter().all(|result| *result == Err(Trouble::Away)));
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 3, "{seen:?}");
    }
}
