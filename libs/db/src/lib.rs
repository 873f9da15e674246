//! What every PostgreSQL service of Bursar stands on: the pool, migrations, the job queue, the outbox with its relay,
//! and compare-and-set.
//!
//! Owns the SQL of its own tables (`sql/*.sql`, which a service copies into its migrations) and nothing of any domain.
//!
//! Invariants, as absences: no lease, due time or order ever depends on this process's clock (the database's decides);
//! no call to the outside is made inside a transaction; no password reaches a log or an error; NOTIFY carries no work.

pub mod batch_writer;
pub mod cas;
pub mod error;
pub mod migrate;
pub mod outbox;
pub mod pool;
pub mod queue;
mod scan;
pub mod statistics;
pub mod wake;

pub use batch_writer::{BatchError, BatchWriter};
pub use cas::{Conflict, expect_one};
pub use error::{DbError, Fault, classify, constraint};
pub use pool::{DatabaseConfig, begin, connect, connect_lazy, dedicated_pool, ping};
pub use queue::{Due, Lease, Queue, QueueError};
pub use statistics::{keep_statistics, refresh_statistics};
pub use wake::{Wake, WakeSubscription, Waker, wake_in};

/// Durations travel to SQL as whole milliseconds; more than this library ever needs is clamped, never wrapped.
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    /// About three hundred years: further than any schedule, near enough for timestamp arithmetic.
    const LONGEST_MS: i64 = 10_000_000_000_000;
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}
