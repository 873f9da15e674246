//! What a worker must do with a job it holds, read off what is stored. Pure.
//!
//! This is where a crash is resumed: whatever step an earlier worker died in, the rows say which one comes next, and nothing
//! else is signed at another nonce while anything signed before could land.

use crate::job::{Attempt, AttemptStatus, Closing, Exposure, Job, Request, State, WorkEvent};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// It has ended, or waits for a verdict or a message.
    Nothing,
    /// No wallet pays it yet.
    Assign,
    /// Nothing was signed that could pay: price it and take a binding.
    Pay,
    /// A binding is taken and the signer may or may not have signed: the same request again.
    Resume(Attempt),
    /// Bytes are stored and may or may not have been sent: the same bytes again.
    Send(Attempt),
    /// The same payment at the same nonce for a higher fee than this attempt's; with other gas if every node refused it.
    Bump(Attempt),
    /// Close the nonce without paying, outbidding this attempt; without one, at the market's price.
    Cancel(Option<Attempt>),
    /// The rows themselves say what became of it.
    End(WorkEvent),
}

pub(super) fn plan(job: &Job, attempts: &[Attempt]) -> Next {
    let at_nonce = || attempts.iter().filter(|attempt| attempt.nonce == job.nonce && job.nonce.is_some());
    let unsigned = attempts.iter().find(|attempt| attempt.status == AttemptStatus::Reserved).cloned();
    let signed = || at_nonce().filter(|attempt| attempt.status.can_land() && attempt.raw.is_some());
    let newest = signed().next_back().cloned();
    // Payments that are in no pool need not be outbid, and a bid above them may be above the cap. A cancellation must not
    // be made twice with the same numbers, so one that was refused is outbid by the next.
    let outbid = signed().rfind(|attempt| !attempt.rejected || attempt.action.is_cancellation()).cloned();
    if unsigned.as_ref().or(newest.as_ref()).is_some_and(Attempt::has_window) {
        return plan_window(job, unsigned, newest);
    }
    match &job.state {
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => Next::Nothing,
        State::Confirming { .. } => match (job.state.request(), unsigned) {
            // Stored by a worker that died before sending: this is what was requested.
            (Some(request), None) if newest.as_ref().is_some_and(|newest| fulfils(newest, request)) => {
                newest.map_or(Next::Nothing, Next::Send)
            }
            (Some(Request::Cancel), Some(begun)) if begun.action.is_cancellation() => Next::Resume(begun),
            (Some(Request::Cancel), _) => Next::Cancel(outbid),
            // Begun by a worker that died: finished, so that no half-made attempt stays behind.
            (Some(Request::Bump) | None, Some(begun)) => Next::Resume(begun),
            (Some(Request::Bump), None) => newest.map_or(Next::Nothing, Next::Bump),
            (None, None) => Next::Nothing,
        },
        State::Pending { exposure, closing: None, .. } | State::Processing { exposure, closing: None } => {
            plan_payment(job, *exposure, unsigned, newest)
        }
        State::Pending { exposure, closing: Some(closing), .. }
        | State::Processing { exposure, closing: Some(closing) } => {
            plan_closing((*exposure, closing), unsigned, newest, outbid)
        }
    }
}

/// With a window there is one signature, which nothing replaces and nothing cancels: what was begun is finished, whatever is
/// requested by now, and then watched until it landed or its time is over. Bytes of a job that is given up are stored and
/// watched too, because only a known hash can be proven absent; they are not sent.
fn plan_window(job: &Job, unsigned: Option<Attempt>, newest: Option<Attempt>) -> Next {
    match (&job.state, unsigned, newest) {
        (State::Pending { .. } | State::Processing { .. }, Some(begun), _) => Next::Resume(begun),
        (State::Pending { .. } | State::Processing { .. }, None, Some(signed)) => Next::Send(signed),
        (State::Pending { .. } | State::Processing { .. }, None, None)
        | (
            State::Confirming { .. } | State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. },
            _,
            _,
        ) => Next::Nothing,
    }
}

/// Whether stored bytes that nobody was offered yet are what is requested.
fn fulfils(newest: &Attempt, request: Request) -> bool {
    let cancels = match request {
        Request::Bump => false,
        Request::Cancel => true,
    };
    newest.action.is_cancellation() == cancels && newest.status == AttemptStatus::Signed && newest.sends == 0
}

fn plan_closing(
    (exposure, closing): (Exposure, &Closing),
    unsigned: Option<Attempt>,
    newest: Option<Attempt>,
    outbid: Option<Attempt>,
) -> Next {
    match (unsigned, newest) {
        (Some(begun), _) if begun.action.is_cancellation() => Next::Resume(begun),
        // A cancellation is stored: it is sent.
        (None, Some(signed)) if signed.action.is_cancellation() && !signed.rejected => Next::Send(signed),
        // What was only reserved is in no pool: nothing of it needs to be outbid, and above its price may be above the cap.
        (_, _) if exposure == Exposure::Held => Next::Cancel(outbid),
        (_, _) => Next::End(WorkEvent::Refused { reason: closing.reason.clone() }),
    }
}

fn plan_payment(job: &Job, exposure: Exposure, unsigned: Option<Attempt>, newest: Option<Attempt>) -> Next {
    let inexplicable = |reason: &str| Next::End(WorkEvent::Inexplicable { reason: reason.to_owned() });
    match (unsigned, newest, exposure) {
        (Some(begun), _, _) => Next::Resume(begun),
        (None, Some(signed), _) => Next::Send(signed),
        (None, None, Exposure::Held) => inexplicable("it holds a nonce and has no attempt at it"),
        (None, None, Exposure::Unproven) => {
            inexplicable("something was signed for it and nothing proves that it cannot pay")
        }
        (None, None, Exposure::Clear) if job.payer.is_none() => Next::Assign,
        (None, None, Exposure::Clear) => Next::Pay,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
