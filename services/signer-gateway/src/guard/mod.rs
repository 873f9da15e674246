//! The payment guard: for each payment, the one place on chain where it may land. Owns the decision whether another
//! signature for a payment is harmless, and the check of void attestations. Never reads a clock or a database, and
//! never takes a caller's word that an earlier transaction is dead.
//!
//! Invariant: at any time at most one nonce of a payment can land, or one transaction on a chain without nonces.

mod attestation;
mod domain;
#[cfg(test)]
mod tests;

pub use attestation::{AttestationError, VerifiedVoid, VoidAttestation};
pub use domain::{
    Bid, Evidence, GuardRefusal, GuardedPayment, Parties, PaymentKey, Proposal, ProposedAction, Slot,
    SlotOwner, State, Step, StepKind, Terms,
};
