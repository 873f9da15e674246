//! What operators look at: pages of requests, and statistics.

use std::time::Duration;

use chrono::{DateTime, Utc};
use types::{Address, AssetSymbol, ChainName, UserId, WithdrawalId};

use super::domain::Status;

/// An empty filter admits all requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Any of these; empty admits all.
    pub statuses: Vec<Status>,
    pub user_id: Option<UserId>,
    pub chain: Option<ChainName>,
    pub asset: Option<AssetSymbol>,
    pub destination: Option<Address>,
    pub created_from: Option<DateTime<Utc>>,
    pub created_to: Option<DateTime<Utc>>,
}

/// One page. Rows are ordered by creation, newest first, and then by id; ids alone would not do, because imported ones carry
/// no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub filter: Filter,
    /// The last row of the page before.
    pub after: Option<(DateTime<Utc>, WithdrawalId)>,
    pub size: u32,
}

/// Counts and averages over a window of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Waiting now, whatever their age.
    pub pending_approvals: u64,
    /// Created in the window, by status; contains every status.
    pub by_status: Vec<(Status, u64)>,
    pub average_approval: Option<Duration>,
    pub average_completion: Option<Duration>,
    /// Completed among those that finished in the window, in parts of ten thousand; 0 when none finished.
    pub completion_rate_basis_points: u32,
}
