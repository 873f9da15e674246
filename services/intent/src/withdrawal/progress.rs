//! What execution and confirmation report about a request. Every report may come late, twice or out of order.

use types::WithdrawalId;

use super::app::Withdrawals;
use super::domain::Event;
use super::error::WithdrawalError;

impl Withdrawals {
    /// Records one step of progress. A replay is not an error; a contradiction is, and raises an alarm.
    pub async fn record_progress(
        &self,
        id: WithdrawalId,
        event: &Event,
        by: &str,
    ) -> Result<(), WithdrawalError> {
        self.apply(id, event, by, |_| Ok(())).await.map(drop)
    }
}
