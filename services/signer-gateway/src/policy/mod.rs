//! Authorisation: which requests the signer's own configuration admits. Owns approvers' keys, limits, allowed
//! destinations and fee caps. Never believes a caller about an asset's contract, a requester's approval or a
//! destination's owner; never counts usage itself (the ledger hands in what was used).

mod approvals;
mod asker;
mod checked;
mod domain;
mod refusal;
mod rules;

pub use approvals::{ApprovalProof, Quorum, VerifiedApproval};
pub use asker::Asker;
pub(crate) use checked::{CheckedSignatures, Checker, Claim};
pub use domain::{Approver, AssetPolicy, ChainPolicy, DutyRule, Policy, Tier, TronPrices, WindowLimit};
pub use refusal::{Finding, Refusal, Rule};
pub use rules::{Assessment, Charge, GroupPurpose};
pub(crate) use rules::{Derived, Registration, assess, claims};
