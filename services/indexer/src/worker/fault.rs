//! Why a range was not read, and whether the range itself is to blame.

use chain::NodeError;

use crate::event::DecodeError;
use crate::node::ReadError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the nodes do not answer")]
    Node(#[from] NodeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the range belongs to another worker now")]
    Lost,
    #[error(
        "{stored} events are stored for the range and {read} were read: it is read again, and all of it replaced"
    )]
    Leftovers { stored: u64, read: u64 },
    #[error("the chain shares none of the newest {0} blocks: it is another one than was read before")]
    AnotherChain(u64),
}

impl Fault {
    /// Whether the failure has nothing to do with the range itself, so that the attempt does not count.
    pub(super) fn is_excused(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Node(error) => error.is_transient(),
            Self::Read(error) => error.is_transient(),
            Self::Decode(_) | Self::AnotherChain(_) => false,
            Self::Lost | Self::Leftovers { .. } => true,
        }
    }
}

/// A range could not even be released: the worker's process has to end.
#[derive(Debug, thiserror::Error)]
#[error("a failed range could not be released")]
pub(crate) struct Fatal(#[source] pub(crate) StoreError);
