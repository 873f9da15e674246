//! A range while it is read: its events, and its future ledger entry.

use crate::event::Batch;
use crate::node::{Chunk, Header, ReadError};
use crate::range::Boundary;

pub(super) struct PartialRange {
    pub(super) batch: Batch,
    pub(super) boundary: Boundary,
    begun: bool,
}

impl PartialRange {
    pub(super) fn new(batch: Batch, address_version: i64) -> Self {
        Self { batch, boundary: Boundary { address_version, ..Boundary::default() }, begun: false }
    }

    /// Adds a chunk, which must continue the one before.
    pub(super) fn add(&mut self, chunk: &Chunk, events: usize, final_to: u64) -> Result<(), ReadError> {
        let (Some(first), Some(last)) = (chunk.headers().first(), chunk.headers().last()) else {
            return Ok(());
        };
        let boundary = &mut self.boundary;
        if !self.begun {
            self.begun = true;
            boundary.parent_hash = first.parent_hash.to_string();
            boundary.from_hash = first.hash.to_string();
            boundary.from_time = first.time();
        } else if boundary.to_hash != first.parent_hash.to_string() {
            return Err(ReadError::Reorged);
        }
        boundary.to_hash = last.hash.to_string();
        boundary.to_time = last.time();
        boundary.count += events as u64;
        let open = chunk.headers().iter().filter(|header: &&Header| header.number() > final_to);
        boundary.hashes.extend(open.map(|header| header.hash.to_string()));
        Ok(())
    }
}
