//! Watches: what jobs are expected to do on chain, the transactions signed for them, and the state of each.

mod add;
pub mod app;
pub mod batch;
pub mod domain;
mod outcome;
pub mod repo;

pub use add::{AddError, Added, NewTransaction};
pub use app::{PutWatch, WatchApp};
pub use domain::{Applied, Ending, Event, State, Status, Watch, WatchedTx, ends_round};
pub use outcome::Outcome;
pub use repo::StoredWatch;
pub use repo::list::{WatchPage, WatchQuery};
