//! Authorisation: which requests the signer's own configuration admits. Owns approvers' keys, limits, allowed
//! destinations and fee caps. Never believes a caller about an asset's contract, a requester's approval or a
//! destination's owner; never counts usage itself (the ledger hands in what was used).

mod approvals;
mod caller;
mod domain;
mod refusal;
mod rules;
mod signatures;

pub use approvals::{ApprovalProof, Quorum, VerifiedApproval};
pub use caller::SigningCaller;
pub use domain::{Approver, AssetPolicy, ChainPolicy, DutyRule, GroupPurpose, Policy, Tier, WindowLimit};
pub use refusal::{Finding, Outcome, Refusal, Rule};
pub use rules::{Assessment, Charge};
pub(crate) use rules::{Derived, Registration, assess, claims};
pub(crate) use signatures::{SignatureChecker, SignatureClaim, VerifiedSignatures};
