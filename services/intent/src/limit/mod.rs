//! Ceilings over rolling windows: how much of an asset may be requested, by one customer or by all together.

pub mod app;
pub mod domain;
pub mod error;
pub mod repo;

pub use app::Limits;
pub use domain::{Draft, Limit, LimitId, Room, Scope, Whose};
pub use error::LimitError;
