//! Sources: a contract, one of its events, a chain, and a start block.

mod addresses;
mod app;
mod domain;
mod error;
mod repo;

pub(crate) use addresses::{AddressBook, OwnAddresses};
pub(crate) use app::SourceApp;
#[cfg(test)]
pub(crate) use domain::testing;
pub(crate) use domain::{MAX_BATCH, MAX_CONCURRENCY, Source, SourceSpec, address};
pub(crate) use error::SourceError;
pub(crate) use repo::SourceRepo;
