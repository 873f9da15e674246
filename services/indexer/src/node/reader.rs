//! A range of blocks read from whichever node can, and checked for completeness.
//!
//! Owns failover and the adaptive range. An answer is taken only whole: its headers reach the end of the range (an empty answer
//! of a node that lags is no answer), and every block that may hold more events than came is read again from its receipts.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chain::NodeError;
use chain::node::Node;

use super::answer::{Chunk, Flaw, assemble};
use super::client::{LogClient, LogFilter, malformed};
use super::pool::Nodes;
use super::refusal::{Refusal, failure, proposed_span};
use super::span::Span;
use super::wire::{Header, WireLog};
use crate::config::Verify;
use crate::source::Source;

/// Suspicious blocks up to which receipts are read; beyond, as on chains whose blooms are full, the blocks are asked for one by
/// one, which costs less.
const RECEIPTS_AT_ONCE: usize = 16;

/// Why a range could not be read. None of these is the range's fault but [`ReadError::Node`] with an odd answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// No node has the whole range; one has it up to `have`.
    #[error("no node has the range yet (blocks up to {have:?})")]
    Behind { have: Option<u64> },
    /// The chain changed while it was read.
    #[error("the chain was reorganised while it was read")]
    Reorged,
    /// Another node has more events than this one, and receipts did not settle it.
    #[error("nodes disagree about the events of block {block}")]
    Disputed { block: u64 },
    #[error("no node could read the range")]
    Node(#[source] NodeError),
}

impl ReadError {
    /// Whether the same range may be read a moment later without anybody acting.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Behind { .. } | Self::Reorged => true,
            Self::Disputed { .. } => false,
            Self::Node(error) => match failure(error) {
                Refusal::TooMuch | Refusal::RateLimited | Refusal::Busy | Refusal::NotThere => true,
                Refusal::NoSuchMethod | Refusal::Other => false,
            },
        }
    }
}

impl From<Flaw> for ReadError {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Behind { have } => Self::Behind { have },
            Flaw::Reorged => Self::Reorged,
            Flaw::Malformed(reason) => Self::Node(NodeError::Malformed { reason }),
        }
    }
}

impl From<NodeError> for ReadError {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

/// Reads the logs of one source.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) nodes: Arc<Nodes>,
    source: String,
    filter: LogFilter,
    verify: Verify,
    span: Mutex<Span>,
}

impl Reader {
    pub(crate) fn new(source: &Source, nodes: Arc<Nodes>, batch: u64, verify: Verify) -> Self {
        let filter = LogFilter { address: source.contract, topic0: source.shape.topic0 };
        let name = source.name().to_owned();
        Self { nodes, source: name, filter, verify, span: Mutex::new(Span::new(batch)) }
    }

    /// The beginning of a range, as much as nodes give at once.
    pub(crate) async fn read(&self, range: &RangeInclusive<u64>) -> Result<Chunk, ReadError> {
        let mut worst = ReadError::Behind { have: None };
        for node in self.nodes.for_block(*range.end()) {
            match self.read_from(&node, range).await {
                Ok(chunk) => return Ok(chunk),
                Err(error) => {
                    if let ReadError::Disputed { block } = error {
                        tracing::warn!(source = self.source, node = %node.name, block,
                            "another node has more events in this block than this one and its receipts");
                    }
                    tracing::debug!(source = self.source, node = %node.name, error = rpc::error::chain(&error), "range not read");
                    worst = worse(worst, error);
                }
            }
        }
        Err(worst)
    }

    /// From one node, with fewer blocks as long as it refuses.
    async fn read_from(
        &self,
        node: &Arc<Node<LogClient>>,
        range: &RangeInclusive<u64>,
    ) -> Result<Chunk, ReadError> {
        loop {
            let blocks = self.span().blocks().min(range.end() - range.start() + 1);
            let part = *range.start()..=range.start() + blocks - 1;
            let error = match self.answer(node, &part).await {
                Ok(chunk) => {
                    self.span().answered(blocks, chunk.logs.len() as u64);
                    return self.whole(node, chunk).await;
                }
                Err(ReadError::Node(error)) if failure(&error) == Refusal::TooMuch => error,
                Err(error) => return Err(error),
            };
            metrics::counter!("bursar_indexer_refused_ranges_total", "source" => self.source.clone())
                .increment(1);
            tracing::debug!(source = self.source, node = %node.name, blocks, %error, "too much at once");
            if blocks == 1 {
                return self.by_receipts(node, *part.start()).await;
            }
            self.span().refused(blocks, proposed_span(&error));
            // A node that did not answer at all may be gone: the next one is asked first, for less.
            if matches!(error, NodeError::Timeout { .. }) {
                return Err(error.into());
            }
        }
    }

    async fn answer(&self, node: &Node<LogClient>, part: &RangeInclusive<u64>) -> Result<Chunk, ReadError> {
        let (logs, headers) = tokio::join!(
            node.ask(|client| client.logs(&self.filter, part)),
            node.ask(|client| client.headers(part.clone())),
        );
        let headers = headers?;
        // Looked at before the logs: a node that lags words its refusal of the range in many ways.
        if headers.last().map(Header::number) != Some(*part.end()) {
            return Err(ReadError::Behind { have: headers.last().map(Header::number) });
        }
        Ok(assemble(part, &self.filter, headers, logs?)?)
    }

    /// One block that is too much for one answer.
    async fn by_receipts(&self, node: &Node<LogClient>, block: u64) -> Result<Chunk, ReadError> {
        let header = node.ask(|client| client.header(block)).await?;
        let Some(header) = header else { return Err(ReadError::Behind { have: block.checked_sub(1) }) };
        let logs = node.ask(|client| client.receipt_logs(&self.filter, &header)).await?;
        let logs = logs.ok_or(ReadError::Reorged)?;
        Ok(assemble(&(block..=block), &self.filter, vec![header], logs)?)
    }

    /// Makes sure that nothing is missing.
    async fn whole(&self, node: &Arc<Node<LogClient>>, mut chunk: Chunk) -> Result<Chunk, ReadError> {
        let thorough = self.verify == Verify::Receipts;
        let mut suspects = chunk.suspects(&self.filter, thorough);
        let ask_another = self.verify == Verify::Auto && self.nodes.len() > 1;
        let opinion = if ask_another { self.second_opinion(node, &chunk).await } else { Vec::new() };
        suspects.extend(opinion.iter().map(|(block, _)| *block));
        suspects.sort_unstable();
        suspects.dedup();
        if suspects.is_empty() {
            return Ok(chunk);
        }
        let mut mended = self.settle(node, &mut chunk, &suspects).await?;
        if mended > 0 && !thorough {
            // A node that left out one thing may have left out another: nothing of this answer is taken on trust.
            let rest: Vec<u64> = chunk
                .suspects(&self.filter, true)
                .into_iter()
                .filter(|block| !suspects.contains(block))
                .collect();
            mended += self.settle(node, &mut chunk, &rest).await?;
        }
        // Another node has the same block with more in it, and receipts do not: this node's answer is not whole. The next one is
        // asked instead; when that cannot be read, the range fails.
        if let Some((block, _)) = opinion.iter().find(|(block, logs)| chunk.logs_in(*block).len() < *logs) {
            return Err(ReadError::Disputed { block: *block });
        }
        if mended > 0 {
            tracing::warn!(source = self.source, node = %node.name, from = chunk.from(), to = chunk.to(), mended,
                "the node's answer was incomplete");
            metrics::counter!("bursar_indexer_incomplete_answers_total", "source" => self.source.clone())
                .increment(1);
        }
        Ok(chunk)
    }

    /// Blocks for which another node has more, and how many. No second opinion to be had is no reason to stop.
    async fn second_opinion(&self, first: &Arc<Node<LogClient>>, chunk: &Chunk) -> Vec<(u64, usize)> {
        let part = chunk.from()..=chunk.to();
        for node in self.nodes.for_block(chunk.to()) {
            if Arc::ptr_eq(&node, first) || node.resting().is_some() {
                continue;
            }
            let Ok(logs) = node.ask(|client| client.logs(&self.filter, &part)).await else { continue };
            // Against the first node's headers: logs of another branch, or of a node that lags, are no opinion on this one.
            match assemble(&part, &self.filter, chunk.headers().to_vec(), logs) {
                Ok(other) => {
                    // What only the first has is in a block whose hash it showed; what only the second has was left out.
                    let counted = chunk
                        .differences(&other)
                        .into_iter()
                        .map(|block| (block, other.logs_in(block).len()));
                    return counted.filter(|(block, logs)| *logs > chunk.logs_in(*block).len()).collect();
                }
                Err(_) => continue,
            }
        }
        Vec::new()
    }

    /// Reads suspicious blocks again, by a better witness than the answer to a range. Gives in how many something was missing.
    async fn settle(
        &self,
        node: &Node<LogClient>,
        chunk: &mut Chunk,
        suspects: &[u64],
    ) -> Result<usize, ReadError> {
        let mut mended = 0;
        if suspects.len() > RECEIPTS_AT_ONCE && self.verify != Verify::Receipts {
            let hashes: Vec<_> =
                suspects.iter().filter_map(|block| chunk.header(*block)).map(|header| header.hash).collect();
            let answers = node.ask(|client| client.logs_of(&self.filter, &hashes)).await?;
            for (block, logs) in suspects.iter().zip(answers) {
                mended += usize::from(chunk.replace(*block, logs)?);
            }
            return Ok(mended);
        }
        for block in suspects {
            let header = chunk.header(*block).ok_or(ReadError::Reorged)?;
            let logs = self.witness(node, header).await?;
            mended += usize::from(chunk.replace(*block, logs)?);
        }
        Ok(mended)
    }

    async fn witness(&self, node: &Node<LogClient>, header: &Header) -> Result<Vec<WireLog>, ReadError> {
        match node.ask(|client| client.receipt_logs(&self.filter, header)).await {
            Ok(Some(logs)) => Ok(logs),
            Ok(None) => Err(ReadError::Reorged),
            // Some hosted nodes sell receipts apart: the single block by its hash is the next best.
            Err(error) if failure(&error) == Refusal::NoSuchMethod || failure(&error) == Refusal::Other => {
                let only = [header.hash];
                let answers = node.ask(|client| client.logs_of(&self.filter, &only)).await?;
                answers.into_iter().next().ok_or_else(|| malformed("no answer for a block").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn span(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of two nodes' failures tells more: an error over "not there yet", and of two ends the further one.
fn worse(known: ReadError, new: ReadError) -> ReadError {
    match (known, new) {
        (ReadError::Behind { have: a }, ReadError::Behind { have: b }) => {
            ReadError::Behind { have: a.max(b) }
        }
        // A node that has part of the range is of more use than the reason why another has none.
        (ReadError::Behind { have: Some(have) }, _) | (_, ReadError::Behind { have: Some(have) }) => {
            ReadError::Behind { have: Some(have) }
        }
        (known, ReadError::Behind { have: None }) => known,
        (_, new) => new,
    }
}
