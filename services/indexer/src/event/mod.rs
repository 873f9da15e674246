//! Events: their signatures, their documents, and how they are stored.

mod decode;
mod document;
mod repo;
mod shape;

pub(crate) use decode::{DecodeError, Decoder};
pub(crate) use document::{Batch, EventDoc, FeeDoc, Stored, parts_of};
pub(crate) use repo::{EventQuery, EventRepo, FeeQuery};
pub(crate) use shape::EventShape;

/// The event of LiFi's FeeCollector: the built-in source.
pub const FEES_COLLECTED: &str = "FeesCollected(address indexed _token, address indexed _integrator, uint256 _integratorFee, uint256 _lifiFee)";
