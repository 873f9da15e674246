//! Approval policies: how many approvals a withdrawal of an asset needs, and who may give them.

pub mod app;
pub mod domain;
pub mod repo;

pub use app::Policies;
pub use domain::{Policy, PolicyDraft, Tier};
