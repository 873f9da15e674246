//! Chains and assets on chains.

mod app;
mod domain;
mod error;
pub(crate) mod repo;

pub use app::Catalogue;
pub(crate) use app::announce_entries_in;
pub use domain::{Asset, Chain, Finality, NewAsset};
pub use error::CatalogueError;
