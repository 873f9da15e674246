//! Nodes: they are queried for logs and headers, and trusted only as far as their responses can be checked.
//!
//! ```text
//! json      the parts of nodes' JSON that are read
//! client    typed requests to one node
//! refusal   what the error texts of nodes mean; the only place that reads them
//! pool      the nodes of one source: identity, heads, order of preference
//! span      how many blocks are requested at once (pure)
//! chunk     a response checked against its headers: hashes, links, duplicates, blooms (pure)
//! reader    a range read from whichever node has it, checked for completeness
//! ```

mod chunk;
mod client;
mod json;
mod pool;
mod reader;
mod refusal;
mod span;

pub(crate) use chunk::Chunk;
pub(crate) use json::{Header, NodeLog};
pub(crate) use pool::{CheckError, Nodes};
pub(crate) use reader::{ReadError, Reader};
