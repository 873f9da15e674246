//! The payment guard: for each payment, the one place on chain where it may land. Owns the decision whether another
//! signature for a payment is harmless, and the check of void attestations. Never reads a clock or a database, and
//! never takes a caller's word that an earlier transaction is dead.
//!
//! Invariant: at any time at most one nonce (EVM) or transaction id (TRON) of a payment can land.

mod attestation;
mod domain;
#[cfg(test)]
mod tests;

pub use attestation::{AttestationError, VoidAttestation, VoidProof};
pub use domain::{
    Act, Bid, Binding, Entry, Evidence, GuardRefusal, PaymentKey, Proposal, Slot, SlotOwner, State, Step,
    StepKind, Terms,
};
