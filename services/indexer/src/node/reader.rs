//! A range of blocks, read from whichever node has it and checked for completeness.
//!
//! Owns failover and the adaptive range. A response is used only if it is complete: its headers reach the end of the range (an
//! empty response of a node that lags does not count), and every block that may hold more events is read again from its receipts.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chain::NodeError;
use chain::node::Node;

use super::chunk::{Chunk, Flaw, assemble};
use super::client::{LogClient, LogFilter, malformed};
use super::json::{Header, NodeLog};
use super::pool::Nodes;
use super::refusal::{Refusal, failure, proposed_span};
use super::span::Span;
use crate::config::Verify;
use crate::source::Source;

/// For more suspicious blocks than this, as on chains whose blooms are full, the logs of single blocks are read instead of
/// receipts, which is cheaper.
const MAX_RECEIPTS: usize = 16;

/// Why a range could not be read. The range itself is to blame only for [`ReadError::Node`] with an unusable response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// No node has the whole range; one has it up to `have`.
    #[error("no node has the range yet (blocks up to {have:?})")]
    Behind { have: Option<u64> },
    /// The chain changed while it was read.
    #[error("the chain was reorganised while it was read")]
    Reorged,
    /// Another node has more events than this one, and receipts did not resolve the difference.
    #[error("nodes disagree about the events of block {block}")]
    Disputed { block: u64 },
    #[error("no node could read the range")]
    Node(#[source] NodeError),
}

impl ReadError {
    /// Whether the range may become readable without an operator.
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

    /// Reads the beginning of a range, as much as nodes return at once.
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

    /// Reads from one node, with fewer blocks as long as it refuses.
    async fn read_from(
        &self,
        node: &Arc<Node<LogClient>>,
        range: &RangeInclusive<u64>,
    ) -> Result<Chunk, ReadError> {
        loop {
            let blocks = self.span().blocks().min(range.end() - range.start() + 1);
            let part = *range.start()..=range.start() + blocks - 1;
            let error = match self.request(node, &part).await {
                Ok(chunk) => {
                    self.span().answered(blocks, chunk.logs.len() as u64);
                    return self.completed(node, chunk).await;
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
            // A node that did not answer may be down, so the next one is tried first, with fewer blocks.
            if matches!(error, NodeError::Timeout { .. }) {
                return Err(error.into());
            }
        }
    }

    async fn request(&self, node: &Node<LogClient>, part: &RangeInclusive<u64>) -> Result<Chunk, ReadError> {
        let (logs, headers) = tokio::join!(
            node.ask(|client| client.logs(&self.filter, part)),
            node.ask(|client| client.headers(part.clone())),
        );
        let headers = headers?;
        // Headers are checked before the logs, because a node that lags refuses logs with many different texts.
        if headers.last().map(Header::number) != Some(*part.end()) {
            return Err(ReadError::Behind { have: headers.last().map(Header::number) });
        }
        Ok(assemble(part, &self.filter, headers, logs?)?)
    }

    /// Reads one block that is too large for one response.
    async fn by_receipts(&self, node: &Node<LogClient>, block: u64) -> Result<Chunk, ReadError> {
        let header = node.ask(|client| client.header(block)).await?;
        let Some(header) = header else { return Err(ReadError::Behind { have: block.checked_sub(1) }) };
        let logs = node.ask(|client| client.receipt_logs(&self.filter, &header)).await?;
        let logs = logs.ok_or(ReadError::Reorged)?;
        Ok(assemble(&(block..=block), &self.filter, vec![header], logs)?)
    }

    /// Adds events that are missing in the response.
    async fn completed(&self, node: &Arc<Node<LogClient>>, mut chunk: Chunk) -> Result<Chunk, ReadError> {
        let thorough = self.verify == Verify::Receipts;
        let mut suspects = chunk.suspects(&self.filter, thorough);
        let compare = self.verify == Verify::Auto && self.nodes.len() > 1;
        let missing = if compare { self.compare(node, &chunk).await } else { Vec::new() };
        suspects.extend(missing.iter().map(|(block, _)| *block));
        suspects.sort_unstable();
        suspects.dedup();
        if suspects.is_empty() {
            return Ok(chunk);
        }
        let mut mended = self.read_again(node, &mut chunk, &suspects).await?;
        if mended > 0 && !thorough {
            // A node that left out one event may have left out others, so every block that may hold one is read again.
            let rest: Vec<u64> = chunk
                .suspects(&self.filter, true)
                .into_iter()
                .filter(|block| !suspects.contains(block))
                .collect();
            mended += self.read_again(node, &mut chunk, &rest).await?;
        }
        // Another node has more events in the same block, and the receipts do not: this node's response is not complete. The next
        // node is tried instead; if that fails too, the range fails.
        if let Some((block, _)) = missing.iter().find(|(block, logs)| chunk.logs_in(*block).len() < *logs) {
            return Err(ReadError::Disputed { block: *block });
        }
        if mended > 0 {
            tracing::warn!(source = self.source, node = %node.name, from = chunk.from(), to = chunk.to(), mended,
                "the node's response was incomplete");
            metrics::counter!("bursar_indexer_incomplete_answers_total", "source" => self.source.clone())
                .increment(1);
        }
        Ok(chunk)
    }

    /// Blocks in which another node has more events, and how many it has. If no other node answers, reading goes on.
    async fn compare(&self, first: &Arc<Node<LogClient>>, chunk: &Chunk) -> Vec<(u64, usize)> {
        let part = chunk.from()..=chunk.to();
        for node in self.nodes.for_block(chunk.to()) {
            if Arc::ptr_eq(&node, first) || node.resting().is_some() {
                continue;
            }
            let Ok(logs) = node.ask(|client| client.logs(&self.filter, &part)).await else { continue };
            // Checked against the first node's headers: logs of another branch, or of a node that lags, do not count.
            match assemble(&part, &self.filter, chunk.headers().to_vec(), logs) {
                Ok(other) => {
                    // Events that only the first node has are proved by their block hash; those that only the second has are missing.
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

    /// Reads suspicious blocks again, one by one. Returns in how many of them events were missing.
    async fn read_again(
        &self,
        node: &Node<LogClient>,
        chunk: &mut Chunk,
        suspects: &[u64],
    ) -> Result<usize, ReadError> {
        let mut mended = 0;
        if suspects.len() > MAX_RECEIPTS && self.verify != Verify::Receipts {
            let hashes: Vec<_> =
                suspects.iter().filter_map(|block| chunk.header(*block)).map(|header| header.hash).collect();
            let responses = node.ask(|client| client.logs_of(&self.filter, &hashes)).await?;
            for (block, logs) in suspects.iter().zip(responses) {
                mended += usize::from(chunk.replace(*block, logs)?);
            }
            return Ok(mended);
        }
        for block in suspects {
            let header = chunk.header(*block).ok_or(ReadError::Reorged)?;
            let logs = self.block_logs(node, header).await?;
            mended += usize::from(chunk.replace(*block, logs)?);
        }
        Ok(mended)
    }

    async fn block_logs(&self, node: &Node<LogClient>, header: &Header) -> Result<Vec<NodeLog>, ReadError> {
        match node.ask(|client| client.receipt_logs(&self.filter, header)).await {
            Ok(Some(logs)) => Ok(logs),
            Ok(None) => Err(ReadError::Reorged),
            // Some hosted nodes do not include receipts; the logs of the single block are the next best source.
            Err(error) if failure(&error) == Refusal::NoSuchMethod || failure(&error) == Refusal::Other => {
                let only = [header.hash];
                let responses = node.ask(|client| client.logs_of(&self.filter, &only)).await?;
                responses.into_iter().next().ok_or_else(|| malformed("no response for a block").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn span(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The more informative failure of two nodes: an error before "not there yet", and of two heads the higher one.
fn worse(known: ReadError, new: ReadError) -> ReadError {
    match (known, new) {
        (ReadError::Behind { have: a }, ReadError::Behind { have: b }) => {
            ReadError::Behind { have: a.max(b) }
        }
        // That a node has part of the range is more useful than why another has none of it.
        (ReadError::Behind { have: Some(have) }, _) | (_, ReadError::Behind { have: Some(have) }) => {
            ReadError::Behind { have: Some(have) }
        }
        (known, ReadError::Behind { have: None }) => known,
        (_, new) => new,
    }
}
