//! Calls that arrive together share a transaction: under load one commit and a handful of statements serve many, and on an
//! idle system nobody waits.
//!
//! Owns the waiting and the answering. It never looks into a call. A group that fails as a whole is written call by call, so
//! that one bad call spoils no other; while the database is away nobody is tried twice. A call that makes the writer panic
//! fails alone too: without the writer nobody would ever be answered again.
//!
//! Invariant: a call is answered after the transaction that holds it has ended, and never with another call's outcome.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

/// Calls that may wait for the next transaction.
const WAITING: usize = 1024;
/// Calls taken together.
const TOGETHER: usize = 256;

/// What a group has to know about the errors of its calls.
pub trait BatchError: Error + Send + Sync + Sized + 'static {
    /// Whether the same call may succeed later without anybody changing anything.
    fn retry(&self) -> bool;

    /// "Not now; ask again": for calls that shared a failure of the database, broke the writer, or came while the group was
    /// closing.
    fn not_now() -> Self;
}

type Waiting<T, R, E> = (T, oneshot::Sender<Result<R, E>>);

/// The way into a group. Clones share it; the writer ends with the last one.
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
    /// Starts the writer; call it inside a Tokio runtime. `write` is one transaction over all that it is given, with one
    /// answer for each, in order.
    #[must_use]
    pub fn start<F, Fut>(name: &'static str, write: F) -> Self
    where
        F: Fn(Arc<[T]>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Result<R, E>>, E>> + Send,
    {
        let (incoming, mut waiting) = mpsc::channel::<Waiting<T, R, E>>(WAITING);
        tokio::spawn(async move {
            let mut group = Vec::with_capacity(TOGETHER);
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

    /// Has a call written, and waits until its transaction has ended.
    ///
    /// # Errors
    /// What became of this call alone.
    pub async fn call(&self, call: T) -> Result<R, E> {
        let (answer, told) = oneshot::channel();
        self.incoming.send((call, answer)).await.map_err(|_| E::not_now())?;
        told.await.map_err(|_| E::not_now())?
    }
}

async fn write_all<T, R, E, F, Fut>(name: &'static str, write: &F, calls: Vec<T>) -> Vec<Result<R, E>>
where
    T: Clone,
    E: BatchError,
    F: Fn(Arc<[T]>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<R, E>>, E>>,
{
    let count = calls.len();
    metrics::histogram!("bursar_group_calls", "group" => name).record(count as f64);
    let calls: Arc<[T]> = calls.into();
    match attempt(name, write, Arc::clone(&calls)).await {
        Ok(Ok(answers)) => return answers,
        Ok(Err(error)) if count == 1 => return vec![Err(error)],
        Ok(Err(error)) if error.retry() => {
            tracing::warn!(group = name, error = &error as &dyn Error, calls = count, "group not written");
            return (0..count).map(|_| Err(E::not_now())).collect();
        }
        Ok(Err(error)) => {
            tracing::warn!(group = name, error = &error as &dyn Error, calls = count, "writing calls alone");
        }
        Err(Panicked) if count == 1 => return vec![Err(E::not_now())],
        Err(Panicked) => {}
    }
    // One of them breaks the transaction. Alone, each succeeds or fails for itself.
    let mut answers = Vec::with_capacity(count);
    for call in calls.iter() {
        let alone =
            attempt(name, write, Arc::from([call.clone()])).await.unwrap_or_else(|_| Err(E::not_now()));
        answers.push(alone.and_then(|mut one| one.pop().unwrap_or_else(|| Err(E::not_now()))));
    }
    answers
}

/// The writer panicked; what it had begun is rolled back with its transaction.
struct Panicked;

async fn attempt<T, R, E, F, Fut>(
    name: &'static str,
    write: &F,
    calls: Arc<[T]>,
) -> Result<Result<Vec<Result<R, E>>, E>, Panicked>
where
    F: Fn(Arc<[T]>) -> Fut,
    Fut: Future<Output = Result<Vec<Result<R, E>>, E>>,
{
    let count = calls.len();
    // Nothing outlives a writing but what is in the database, so there is nothing that could be left half changed.
    AssertUnwindSafe(write(calls)).catch_unwind().await.map_err(|_| {
        tracing::error!(group = name, calls = count, "the writer of a group panicked; going on");
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
        #[error("bad call")]
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

    /// Doubles numbers; the groups it was given are kept. The gate holds it back until all calls wait.
    fn doubling(gate: Arc<Semaphore>, seen: Arc<Mutex<Vec<Vec<u32>>>>) -> BatchWriter<u32, u32, Trouble> {
        BatchWriter::start("test", move |calls: Arc<[u32]>| {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            async move {
                gate.acquire().await.expect("never closed").forget();
                gate.add_permits(1);
                seen.lock().expect("not poisoned").push(calls.to_vec());
                match calls.iter().find(|call| **call >= 100) {
                    Some(300) => panic!("a call that nobody thought of"),
                    Some(200) => Err(Trouble::Away),
                    Some(_) => Err(Trouble::Bad),
                    None => Ok(calls.iter().map(|call| Ok(call * 2)).collect()),
                }
            }
        })
    }

    async fn ask(numbers: &[u32]) -> (Vec<Result<u32, Trouble>>, Vec<Vec<u32>>) {
        let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let group = doubling(Arc::clone(&gate), Arc::clone(&seen));
        let calls: Vec<_> = numbers
            .iter()
            .map(|number| {
                let (group, number) = (group.clone(), *number);
                tokio::spawn(async move { group.call(number).await })
            })
            .collect();
        tokio::task::yield_now().await;
        gate.add_permits(1);
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("no panic"));
        }
        let seen = seen.lock().expect("not poisoned").clone();
        (answers, seen)
    }

    #[tokio::test]
    async fn calls_that_wait_together_are_written_together() {
        let (answers, seen) = ask(&[1, 2, 3, 4]).await;
        assert_eq!(answers, [Ok(2), Ok(4), Ok(6), Ok(8)]);
        assert!(seen.len() <= 2, "{seen:?}");
    }

    #[tokio::test]
    async fn a_bad_call_spoils_no_other() {
        let (answers, _) = ask(&[1, 100, 3]).await;
        assert_eq!(answers, [Ok(2), Err(Trouble::Bad), Ok(6)]);
    }

    #[tokio::test]
    async fn a_call_that_breaks_the_writer_is_refused_alone_and_the_group_goes_on() {
        let (gate, seen) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(Vec::new())));
        let group = doubling(gate, seen);
        let (one, bad, three) = tokio::join!(group.call(1), group.call(300), group.call(3));
        assert_eq!((one, bad, three), (Ok(2), Err(Trouble::Away), Ok(6)));
        assert_eq!(group.call(300).await, Err(Trouble::Away), "alone from the start");
        assert_eq!(group.call(4).await, Ok(8));
    }

    #[tokio::test]
    async fn while_the_database_is_away_nobody_is_tried_twice() {
        let (answers, seen) = ask(&[200, 200, 200]).await;
        assert!(answers.iter().all(|answer| *answer == Err(Trouble::Away)));
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 3, "{seen:?}");
    }
}
