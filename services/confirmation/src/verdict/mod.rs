//! Verdicts: evidence that changes watches, what was observed on the way, and the signed findings that are sent.

pub mod attestation;
pub mod record;
pub mod repo;

pub use attestation::AttestationKey;
pub use record::Evidence;
pub use repo::{Observation, ObservationKind, StoredObservation};
