//! A node's response, checked against the headers of its blocks. Pure.
//!
//! Owns the rules by which a response is trusted: the headers are linked, each log lies in the block that its header names,
//! nothing occurs twice, and nothing is there that was not requested. It also finds blocks that may be incomplete: one whose bloom
//! announces events but has none, and the last block of a response whose size suggests that it was cut off.

use std::ops::RangeInclusive;

use alloy_primitives::{Bloom, BloomInput};

use super::client::LogFilter;
use super::json::{Header, NodeLog};

/// Why a response cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The node ends before the range does.
    Behind {
        have: Option<u64>,
    },
    /// Logs and headers belong to different branches.
    Reorged,
    Malformed(String),
}

/// A checked run of blocks and the logs in them, in chain order.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// Never empty.
    headers: Vec<Header>,
    pub(crate) logs: Vec<NodeLog>,
}

impl Chunk {
    pub(crate) fn from(&self) -> u64 {
        self.headers.first().map_or(0, Header::number)
    }

    pub(crate) fn to(&self) -> u64 {
        self.headers.last().map_or(0, Header::number)
    }

    pub(crate) fn headers(&self) -> &[Header] {
        &self.headers
    }

    pub(super) fn header(&self, block: u64) -> Option<&Header> {
        let place = usize::try_from(block.checked_sub(self.from())?).ok()?;
        self.headers.get(place)
    }

    /// The block's time in seconds.
    pub(crate) fn time_of(&self, block: u64) -> u64 {
        self.header(block).map_or(0, Header::time)
    }

    /// The logs of one block.
    pub(super) fn logs_in(&self, block: u64) -> &[NodeLog] {
        let begin = self.logs.partition_point(|log| log.block() < block);
        let end = self.logs.partition_point(|log| log.block() <= block);
        &self.logs[begin..end]
    }

    /// Replaces a block's logs by those of a more reliable source. Returns whether they differ.
    pub(super) fn replace(&mut self, block: u64, logs: Vec<NodeLog>) -> Result<bool, Flaw> {
        let Some(header) = self.header(block) else { return Err(Flaw::Reorged) };
        let logs = sorted(logs)?;
        if logs.iter().any(|log| log.block_hash != header.hash || log.block() != block) {
            return Err(Flaw::Reorged);
        }
        let places = |logs: &[NodeLog]| logs.iter().map(NodeLog::index).collect::<Vec<_>>();
        if places(self.logs_in(block)) == places(&logs) {
            return Ok(false);
        }
        let begin = self.logs.partition_point(|log| log.block() < block);
        let end = self.logs.partition_point(|log| log.block() <= block);
        self.logs.splice(begin..end, logs);
        Ok(true)
    }

    /// Blocks in which another response to the same request differs.
    pub(super) fn differences(&self, other: &Chunk) -> Vec<u64> {
        let same = |block: u64| {
            let key = |log: &NodeLog| (log.block_hash, log.index());
            self.logs_in(block).iter().map(key).eq(other.logs_in(block).iter().map(key))
        };
        self.headers.iter().map(Header::number).filter(|block| !same(*block)).collect()
    }

    /// Blocks that must be read again from a more reliable source; with `thorough`, every block that may hold an event.
    pub(super) fn suspects(&self, filter: &LogFilter, thorough: bool) -> Vec<u64> {
        let announced = announced(filter);
        let hit = |header: &Header| header.logs_bloom.as_ref().map(|bloom| bloom.contains(&announced));
        let silent = |header: &&Header| self.logs_in(header.number()).is_empty();
        // Some chains leave the bloom empty. If it denies an event that exists, it proves nothing for other blocks either.
        let honest =
            self.headers.iter().filter(|header| !silent(header)).all(|header| hit(header) != Some(false));
        let cut = looks_cut_off(self.logs.len()).then(|| self.logs.last().map(NodeLog::block)).flatten();
        let suspicious = |header: &&Header| match hit(header).filter(|_| honest) {
            Some(true) => thorough || silent(header) || cut == Some(header.number()),
            Some(false) => false,
            None => thorough || cut == Some(header.number()),
        };
        self.headers.iter().filter(suspicious).map(Header::number).collect()
    }
}

/// The bits that are set in the bloom of a block with such an event.
fn announced(filter: &LogFilter) -> Bloom {
    let mut bloom = Bloom::default();
    bloom.accrue(BloomInput::Raw(filter.topic0.as_slice()));
    if let Some(address) = filter.address {
        bloom.accrue(BloomInput::Raw(address.as_slice()));
    }
    bloom
}

/// Nodes that cut a response off do so at a round number.
fn looks_cut_off(logs: usize) -> bool {
    logs >= 50 && (logs.is_multiple_of(50) || logs.is_power_of_two())
}

/// Sorts logs in chain order and drops duplicates.
fn sorted(mut logs: Vec<NodeLog>) -> Result<Vec<NodeLog>, Flaw> {
    if logs.iter().any(|log| log.removed) {
        return Err(Flaw::Reorged);
    }
    if !logs.is_sorted_by_key(NodeLog::place) {
        logs.sort_by_key(NodeLog::place);
    }
    let mut contradiction = false;
    logs.dedup_by(|later, earlier| {
        let same_place = later.place() == earlier.place();
        contradiction |= same_place && later != earlier;
        same_place
    });
    // The response mixes two branches, or is wrong; in either case the next one may differ.
    if contradiction { Err(Flaw::Reorged) } else { Ok(logs) }
}

/// Checks a response.
pub(super) fn assemble(
    blocks: &RangeInclusive<u64>,
    filter: &LogFilter,
    headers: Vec<Header>,
    logs: Vec<NodeLog>,
) -> Result<Chunk, Flaw> {
    let malformed = |what: &str| Err(Flaw::Malformed(what.to_owned()));
    if headers.iter().zip(blocks.clone()).any(|(header, number)| header.number() != number) {
        return malformed("a header of another block");
    }
    if headers.last().map(Header::number) != Some(*blocks.end()) {
        return Err(Flaw::Behind { have: headers.last().map(Header::number) });
    }
    if headers.windows(2).any(|pair| pair[1].parent_hash != pair[0].hash) {
        return Err(Flaw::Reorged);
    }
    let logs = sorted(logs)?;
    if logs.iter().any(|log| !filter.admits(log)) {
        return malformed("a log that was not requested");
    }
    let chunk = Chunk { headers, logs };
    for log in &chunk.logs {
        match chunk.header(log.block()) {
            None => return malformed("a log of a block that was not requested"),
            Some(header) if header.hash != log.block_hash => return Err(Flaw::Reorged),
            Some(_) => {}
        }
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256};

    use super::*;

    const FILTER: LogFilter =
        LogFilter { address: Some(Address::repeat_byte(0xaa)), topic0: B256::repeat_byte(0xbb) };

    fn hash(block: u64) -> B256 {
        B256::from(alloy_primitives::U256::from(block + 1))
    }

    fn headers(blocks: RangeInclusive<u64>, with_events: &[u64]) -> Vec<Header> {
        blocks
            .map(|number| {
                let bloom = if with_events.contains(&number) { announced(&FILTER) } else { Bloom::default() };
                Header::test(number, hash(number), hash(number.wrapping_sub(1)), Some(bloom))
            })
            .collect()
    }

    fn log(block: u64, index: u64) -> NodeLog {
        NodeLog::test(block, hash(block), index, Address::repeat_byte(0xaa), B256::repeat_byte(0xbb))
    }

    #[test]
    fn a_good_answer_is_sorted_and_rid_of_doubles() {
        let logs = vec![log(7, 3), log(5, 1), log(5, 0), log(7, 3)];
        let chunk = assemble(&(5..=8), &FILTER, headers(5..=8, &[5, 7]), logs).unwrap();
        assert_eq!(chunk.logs.iter().map(NodeLog::place).collect::<Vec<_>>(), [(5, 0), (5, 1), (7, 3)]);
        assert!(chunk.suspects(&FILTER, false).is_empty());
        assert_eq!(chunk.suspects(&FILTER, true), [5, 7]);
    }

    #[test]
    fn a_node_that_ends_early_is_behind_even_without_logs() {
        let flaw = assemble(&(5..=8), &FILTER, headers(5..=6, &[]), Vec::new()).unwrap_err();
        assert_eq!(flaw, Flaw::Behind { have: Some(6) });
        let flaw = assemble(&(5..=8), &FILTER, Vec::new(), Vec::new()).unwrap_err();
        assert_eq!(flaw, Flaw::Behind { have: None });
    }

    #[test]
    fn an_answer_across_two_branches_is_not_used() {
        let mut unlinked = headers(5..=8, &[]);
        unlinked[2].parent_hash = B256::ZERO;
        assert_eq!(assemble(&(5..=8), &FILTER, unlinked, Vec::new()).unwrap_err(), Flaw::Reorged);
        let mut foreign = log(6, 0);
        foreign.block_hash = B256::ZERO;
        let flaw = assemble(&(5..=8), &FILTER, headers(5..=8, &[6]), vec![foreign]).unwrap_err();
        assert_eq!(flaw, Flaw::Reorged);
        let mut removed = log(6, 0);
        removed.removed = true;
        let flaw = assemble(&(5..=8), &FILTER, headers(5..=8, &[6]), vec![removed]).unwrap_err();
        assert_eq!(flaw, Flaw::Reorged);
    }

    #[test]
    fn what_was_not_requested_is_refused() {
        let mut other = log(6, 0);
        other.address = Address::ZERO;
        for logs in [vec![other], vec![log(9, 0)]] {
            let flaw = assemble(&(5..=8), &FILTER, headers(5..=8, &[]), logs).unwrap_err();
            assert!(matches!(flaw, Flaw::Malformed(_)), "{flaw:?}");
        }
    }

    #[test]
    fn an_announced_event_that_is_missing_is_suspicious_and_can_be_added() {
        let mut chunk = assemble(&(5..=8), &FILTER, headers(5..=8, &[5, 6]), vec![log(5, 0)]).unwrap();
        assert_eq!(chunk.suspects(&FILTER, false), [6]);
        assert_eq!(chunk.replace(6, vec![log(6, 1)]), Ok(true));
        assert_eq!(chunk.replace(6, vec![log(6, 1)]), Ok(false));
        assert_eq!(chunk.logs.iter().map(NodeLog::place).collect::<Vec<_>>(), [(5, 0), (6, 1)]);
        assert!(chunk.suspects(&FILTER, false).is_empty());
        assert_eq!(chunk.replace(7, vec![log(6, 1)]), Err(Flaw::Reorged));
    }

    #[test]
    fn a_round_number_of_logs_makes_the_last_block_suspicious() {
        let logs: Vec<_> = (0..100).map(|index| log(5 + index / 60, index)).collect();
        let chunk = assemble(&(5..=8), &FILTER, headers(5..=8, &[5, 6]), logs).unwrap();
        assert_eq!(chunk.suspects(&FILTER, false), [6]);
    }

    #[test]
    fn a_bloom_that_denies_what_is_there_counts_for_nothing() {
        let chunk = assemble(&(5..=8), &FILTER, headers(5..=8, &[7]), vec![log(5, 0)]).unwrap();
        assert!(chunk.suspects(&FILTER, false).is_empty());
    }

    #[test]
    fn answers_are_compared_block_by_block() {
        let one = assemble(&(5..=8), &FILTER, headers(5..=8, &[]), vec![log(5, 0), log(6, 0)]).unwrap();
        let two = assemble(&(5..=8), &FILTER, headers(5..=8, &[]), vec![log(5, 0), log(7, 0)]).unwrap();
        assert_eq!(one.differences(&two), [6, 7]);
        assert!(one.differences(&one).is_empty());
    }
}
