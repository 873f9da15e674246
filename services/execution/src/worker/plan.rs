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
    /// The same payment at the same nonce for a higher fee than this attempt's; with other gas if every node refused it.
    Bump(Attempt),
    /// Close the nonce without paying, outbidding this attempt; without one, at the market's price.
    Cancel(Option<Attempt>),
    /// The rows say so themselves.
    End(Event),
}

pub(super) fn plan(job: &Job, attempts: &[Attempt]) -> Next {
    let at_nonce = || attempts.iter().filter(|attempt| attempt.nonce == job.nonce && job.nonce.is_some());
    let unsigned = attempts.iter().find(|attempt| attempt.status == AttemptStatus::Reserved).cloned();
    let signed = || at_nonce().filter(|attempt| attempt.status.is_live() && attempt.raw.is_some());
    let newest = signed().next_back().cloned();
    // Payments that are in no pool need not be outbid, and a bid above them may be above the cap. A cancellation must not
    // be made twice with the same numbers, so one that was refused is outbid by the next.
    let outbid = signed().rfind(|attempt| !attempt.rejected || attempt.kind == AttemptKind::Cancel).cloned();
    if unsigned.as_ref().or(newest.as_ref()).is_some_and(|attempt| attempt.window.is_some()) {
        return plan_window(job, unsigned, newest);
    }
    match &job.state {
        State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. } => Next::Nothing,
        State::Confirming => match (job.wanted, unsigned) {
            // Stored by a worker that died before sending: this is what was wanted.
            (Some(wanted), None) if newest.as_ref().is_some_and(|newest| answers(newest, wanted)) => {
                newest.map_or(Next::Nothing, Next::Send)
            }
            (Some(Wanted::Cancel), Some(begun)) if begun.kind == AttemptKind::Cancel => Next::Resume(begun),
            (Some(Wanted::Cancel), _) => Next::Cancel(outbid),
            // Begun by a worker that died: finished, so that no half-made attempt stays behind.
            (Some(Wanted::Bump) | None, Some(begun)) => Next::Resume(begun),
            (Some(Wanted::Bump), None) => newest.map_or(Next::Nothing, Next::Bump),
            (None, None) => Next::Nothing,
        },
        State::Pending { .. } | State::Processing => plan_unsent(job, unsigned, newest, outbid),
    }
}

/// Within a window there is one signature, which nothing replaces and nothing cancels: what was begun is finished, whatever is
/// wanted by now, and then watched until it landed or its time is over. Bytes of a job that is given up are stored and
/// watched too, because only their hash can be proven absent; they are not sent.
fn plan_window(job: &Job, unsigned: Option<Attempt>, newest: Option<Attempt>) -> Next {
    match (&job.state, unsigned, newest) {
        (State::Pending { .. } | State::Processing, Some(begun), _) => Next::Resume(begun),
        (State::Pending { .. } | State::Processing, None, Some(signed)) => Next::Send(signed),
        (State::Pending { .. } | State::Processing, None, None)
        | (State::Confirming | State::Confirmed { .. } | State::Failed { .. } | State::Parked { .. }, _, _) => {
            Next::Nothing
        }
    }
}

/// Whether bytes that nobody was offered yet are what is wanted.
fn answers(newest: &Attempt, wanted: Wanted) -> bool {
    let kind = match wanted {
        Wanted::Bump => AttemptKind::Pay,
        Wanted::Cancel => AttemptKind::Cancel,
    };
    newest.kind == kind && newest.status == AttemptStatus::Signed && newest.sends == 0
}

fn plan_unsent(
    job: &Job,
    unsigned: Option<Attempt>,
    newest: Option<Attempt>,
    outbid: Option<Attempt>,
) -> Next {
    let giving_up = job.wanted == Some(Wanted::Cancel) || job.cancel_reason.is_some();
    match (giving_up, unsigned, newest) {
        (true, Some(begun), _) if begun.kind == AttemptKind::Cancel => Next::Resume(begun),
        // A cancellation is stored: it goes out.
        (true, None, Some(signed)) if signed.kind == AttemptKind::Cancel && !signed.rejected => {
            Next::Send(signed)
        }
        // What was only reserved is in no pool: nothing of it needs to be outbid, and above its price may be above the cap.
        (true, _, _) if job.nonce.is_some() => Next::Cancel(outbid),
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
