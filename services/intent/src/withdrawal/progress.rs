//! What execution and confirmation report about a request. Every report may come late, twice or out of order.

use types::WithdrawalId;

use super::app::Withdrawals;
use super::domain::Event;
use super::error::WithdrawalError;
use super::measure;
use super::together::{Call, Told};

impl Withdrawals {
    /// Records one step of progress. A replay is not an error; a contradiction is, and raises an alarm.
    pub async fn record_progress(
        &self,
        id: WithdrawalId,
        event: &Event,
        by: &str,
    ) -> Result<(), WithdrawalError> {
        let call = Call::Report { id, event: event.clone(), by: by.to_owned() };
        match self.desk.call(call).await? {
            Told::Nothing(_) => Ok(()),
            Told::Changed { withdrawal, notes, .. } => {
                let status = withdrawal.state.status();
                tracing::info!(withdrawal_id = %id, actor = by, event = event.name(), %status, "withdrawal changed");
                measure::changed(&withdrawal, &notes);
                Ok(())
            }
            Told::Illegal { withdrawal, illegal } => {
                if illegal.contradiction {
                    measure::contradicted(&withdrawal, &illegal, by);
                }
                Err(illegal.into())
            }
            Told::Refused { refusal, .. } => Err(WithdrawalError::Refused(refusal)),
        }
    }
}
