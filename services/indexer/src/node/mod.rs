//! Nodes: asked for logs and headers, believed only as far as their answers can be checked.
//!
//! ```text
//! wire      the parts of nodes' JSON that are read
//! client    typed questions to one node
//! refusal   what nodes' many wordings mean; the only place that reads them
//! pool      the nodes of one source: identity, heads, order of preference
//! span      how many blocks are asked for at once (pure)
//! answer    one answer against its headers: hashes, links, duplicates, blooms (pure)
//! reader    a range read from whichever node can, checked for completeness
//! ```

mod answer;
mod client;
mod pool;
mod reader;
mod refusal;
mod span;
mod wire;

pub(crate) use answer::Chunk;
pub(crate) use pool::{CheckError, Nodes};
pub(crate) use reader::{ReadError, Reader};
pub(crate) use wire::{Header, WireLog};
