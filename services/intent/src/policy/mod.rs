//! Approval policies: how many must approve a withdrawal of an asset, and who they may be.

pub mod app;
pub mod domain;
pub mod error;
pub mod repo;

pub use app::Policies;
pub use domain::{Draft, Policy, Tier};
pub use error::PolicyError;
