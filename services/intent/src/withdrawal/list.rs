//! Which requests a list shows.

use chrono::{DateTime, Utc};
use types::{Address, AssetSymbol, ChainName, UserId, WithdrawalId};

use super::domain::Status;

/// What a request must be to be shown; an empty filter admits all.
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

/// One page. Rows are ordered by creation, newest first, and then by id: ids alone do not do, as imported ones carry no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub filter: Filter,
    /// The last row of the page before.
    pub after: Option<(DateTime<Utc>, WithdrawalId)>,
    /// Rows to read.
    pub size: u32,
}
