//! Limits over rolling windows: how much of an asset one customer, or all customers together, may request.

pub mod app;
pub mod domain;
pub mod repo;

pub use app::Limits;
pub use domain::{AppliedLimit, Headroom, Limit, LimitDraft, LimitId, Scope};
