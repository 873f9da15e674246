//! What a worker must do with a job it holds, read off what is stored. Pure.
//!
//! This is where a crash is resumed: whatever step an earlier worker died in, the rows say which one comes next, and none of
//! the answers is "sign something else at another nonce" while anything signed before could land.

use crate::job::{Attempt, AttemptKind, AttemptStatus, Event, Job, State, Wanted};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it has ended, or somebody else's word is waited for.
    Nothing,
    /// No wallet pays it yet.
    Assign,
    /// Nothing was signed that could pay: price it and take a nonce.
    Pay,
    /// A nonce is taken and the signer may or may not have signed: the same request again.
    Resume(Attempt),
    /// Bytes are stored and may or may not have been sent: the same bytes again.
    Send(Attempt),
    /// The same payment at the same nonce for a higher fee than this attempt's.
    Bump(Attempt),
    /// Close the nonce without paying, outbidding this attempt.
    Cancel(Option<Attempt>),
    /// The rows say so themselves.
    End(Event),
}

pub(super) fn plan(job: &Job, attempts: &[Attempt]) -> Next {
    let at_nonce = || attempts.iter().filter(|attempt| attempt.nonce == job.nonce && job.nonce.is_some());
    let unsigned = attempts.iter().find(|attempt| attempt.status == AttemptStatus::Reserved).cloned();
    let newest = at_nonce().rfind(|attempt| attempt.status.is_live() && attempt.raw.is_some()).cloned();
    match &job.state {
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => Next::Nothing,
        State::Confirming => match (job.wanted, unsigned) {
            (Some(Wanted::Cancel), Some(begun)) if begun.kind == AttemptKind::Cancel => Next::Resume(begun),
            (Some(Wanted::Cancel), _) => Next::Cancel(newest),
            // Begun by a worker that died: finished, so that no half-made attempt stays behind.
            (Some(Wanted::Bump) | None, Some(begun)) => Next::Resume(begun),
            (Some(Wanted::Bump), None) => newest.map_or(Next::Nothing, Next::Bump),
            (None, None) => Next::Nothing,
        },
        State::Pending { .. } | State::Processing => plan_unsent(job, unsigned, newest),
    }
}

fn plan_unsent(job: &Job, unsigned: Option<Attempt>, newest: Option<Attempt>) -> Next {
    let giving_up = job.wanted == Some(Wanted::Cancel) || job.cancel_reason.is_some();
    match (giving_up, unsigned, newest) {
        (true, Some(begun), _) if begun.kind == AttemptKind::Cancel => Next::Resume(begun),
        // A cancellation is stored: it goes out.
        (true, None, Some(signed)) if signed.kind == AttemptKind::Cancel => Next::Send(signed),
        (true, unsigned, newest) if job.nonce.is_some() => Next::Cancel(newest.or(unsigned)),
        (true, _, _) => {
            let reason = job.cancel_reason.clone().unwrap_or_else(|| "given up".to_owned());
            Next::End(Event::Refused { reason })
        }
        (false, Some(begun), _) => Next::Resume(begun),
        (false, None, Some(signed)) => Next::Send(signed),
        (false, None, None) if job.nonce.is_some() => {
            let reason = "it holds a nonce and has no attempt at it".to_owned();
            Next::End(Event::Inexplicable { reason })
        }
        (false, None, None) if !job.may_pay_again() => {
            let reason = "something was signed for it and nothing proves that it cannot pay".to_owned();
            Next::End(Event::Inexplicable { reason })
        }
        (false, None, None) if job.payer.is_none() => Next::Assign,
        (false, None, None) => Next::Pay,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
