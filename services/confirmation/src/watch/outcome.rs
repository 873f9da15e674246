//! What a final transaction of a job did, read from the effect that the nodes agreed on.

use payment::{Effect, EffectCheck, NoEffect};

/// What a final transaction of the job did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Paid,
    Failed {
        reason: String,
        value_moved: bool,
    },
    /// It was the job's own cancellation, which moves nothing. It closed the binding whether it succeeded or not.
    Cancelled,
}

impl Outcome {
    /// `None` when the nodes' answer does not show what happened. That delays the verdict and decides nothing.
    pub fn of(effect: &Effect, check: &EffectCheck) -> Option<Self> {
        let is_cancellation = matches!(effect, Effect::Closes { .. });
        let failed =
            |reason: &str, value_moved| Some(Self::Failed { reason: reason.to_owned(), value_moved });
        match check {
            EffectCheck::Happened | EffectCheck::Reverted if is_cancellation => Some(Self::Cancelled),
            EffectCheck::NoEffect { why: NoEffect::NoTransferLog | NoEffect::OtherTransaction }
            | EffectCheck::WrongAmount { .. }
                if is_cancellation =>
            {
                failed("the transaction was said to be a cancellation and is something else", true)
            }
            EffectCheck::Happened => Some(Self::Paid),
            EffectCheck::Reverted => failed("the transaction was included and reverted", false),
            // The receipt says success. A token that moves balances without a log looks exactly like this, so "nothing
            // moved" would be a guess, and a wrong guess pays twice.
            EffectCheck::NoEffect { why: NoEffect::NoTransferLog } => failed(
                "the transaction succeeded without the token's Transfer log; whether anything moved is not known",
                true,
            ),
            EffectCheck::NoEffect { why: NoEffect::OtherTransaction } => {
                failed("the transaction has another sender, receiver or contract than expected", true)
            }
            EffectCheck::NoEffect { why: NoEffect::NoStatus | NoEffect::NoTransaction } => None,
            EffectCheck::WrongAmount { moved } => Some(Self::Failed {
                reason: format!("the receiver got {moved} instead of the amount"),
                value_moved: true,
            }),
        }
    }
}
