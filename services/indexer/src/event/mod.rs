//! Events: their shape, their documents, and where they are stored.

mod decode;
mod document;
mod list;
mod repo;
mod shape;

pub(crate) use decode::{DecodeError, Decoder};
pub(crate) use document::{Batch, EventDoc, FeeDoc, Stored, parts_of};
pub(crate) use list::{EventQuery, FeeQuery};
pub(crate) use repo::EventRepo;
pub(crate) use shape::{EventShape, ShapeError};

/// The event of LiFi's FeeCollector: the built-in source.
pub const FEES_COLLECTED: &str = "FeesCollected(address indexed _token, address indexed _integrator, uint256 _integratorFee, uint256 _lifiFee)";
