//! Chains: what execution's catalogue says of them, as far as confirmation needs it.

pub mod app;
pub mod domain;
pub mod repo;

pub use app::ChainApp;
pub use domain::Settings;
