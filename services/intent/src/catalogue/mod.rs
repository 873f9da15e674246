//! The read copy of execution's catalogue: what may be withdrawn, how amounts and addresses are written, and which destinations
//! are refused.

pub mod app;
pub mod domain;
pub mod repo;

pub use app::Catalogue;
pub(crate) use domain::columns;
pub use domain::{AddressKind, AssetOnChain, CatalogueEntry, unknown_asset};
