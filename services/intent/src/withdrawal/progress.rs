//! What execution and confirmation report about a request. Every report may come late, twice or out of order.

use types::WithdrawalId;

use super::app::Withdrawals;
use super::domain::Event;
use super::error::WithdrawalError;
use super::measure;
use super::together::{Call, Told};

/// Who notes what the relay learned.
const RELAY: &str = "intent";
/// Reasons are for people; more than this is a stack trace.
const MAX_REASON_CHARS: usize = 1000;

impl Withdrawals {
    /// Notes that execution refused to take a request. Nothing is said about payment: the message stays parked, and a request
    /// that execution holds after all keeps what execution says about it.
    pub async fn handover_refused(&self, id: WithdrawalId, refusal: &str) -> Result<(), WithdrawalError> {
        // PostgreSQL's text knows no zero byte, and a receiver's words may hold anything.
        let words: String = refusal.chars().filter(|symbol| *symbol != '\0').take(MAX_REASON_CHARS).collect();
        let event = Event::RefuseHandover { reason: format!("execution refused to take it: {words}") };
        self.record_progress(id, &event, RELAY).await
    }

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
