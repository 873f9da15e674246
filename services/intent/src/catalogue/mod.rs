//! The read copy of execution's catalogue: what may be withdrawn, how its amounts and addresses are written, and where it must
//! not go.

pub mod app;
pub mod domain;
pub mod error;
pub mod repo;

pub use app::Catalogue;
pub use domain::{Entry, Standing};
pub use error::CatalogueError;
