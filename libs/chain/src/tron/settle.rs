//! Reads for verdicts: the status of claimed transactions, and what became of a window, as of a solid block.
//!
//! Every node is asked, and each answers from its own solid blocks. It must have the final block in question under the same id,
//! otherwise it contradicts; a receipt counts only together with the solid block that contains its transaction; and a node that lags,
//! limits its callers or keeps no history abstains. `NodeSet` combines the answers.
//!
//! An answer about the transaction itself never proves that it can no longer land: `{}` means as little as a timeout. Instead all solid
//! blocks from the reference on are read, linked by their parents, until one is at or beyond the expiration. Every later block has a
//! parent at or beyond it and cannot include the transaction.
//!
//! A block that is shown without one of its transactions could cause a second payment, so the transactions must match the root in the
//! header. For some transactions nodes do not show every byte that was hashed. The root proves nothing then, and the receipts that the
//! node keeps for the block, which come from another store, must name the same transactions. In any case the nodes must have shown the
//! same transactions: see [`Fate::Expired`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use payment::{BlockRef, Closing, Cost};
use sha2::{Digest as _, Sha256};
use types::{RawAmount, TxHash};

use super::chain::head_at;
use super::client::{Side, TronClient};
use super::effect;
use super::wire::{WireBlock, WireInfo, unsigned};
use crate::edge::{Claim, Fate, FateQuestion, Settlement, TxStatus};
use crate::error::NodeError;
use crate::heads::Head;
use crate::node::Node;
use crate::node::agreement::NodeAnswer;

/// Blocks in one request of the scan. They are whole blocks, and a node must send them within one timeout.
const SCAN_STEP: u64 = 20;
/// A window is at most a day long, which is fewer blocks than this.
const LONGEST_SCAN: u64 = 65_536;

/// The answer of a node that does not have that final block.
async fn objection<T>(node: &Arc<Node<TronClient>>, asof: &Head) -> Result<Option<NodeAnswer<T>>, NodeError> {
    Ok(match head_at(node, Side::Solid, asof.number).await? {
        None => Some(NodeAnswer::Abstain(format!("has no solid block {} yet", asof.number))),
        Some(head) if head != *asof => {
            Some(NodeAnswer::Conflict(format!("has block {} at final height {}", head.hash, asof.number)))
        }
        Some(_) => None,
    })
}

/// The answer of one node for each claim.
pub(super) async fn statuses(
    node: &Arc<Node<TronClient>>,
    claims: &[Claim],
    asof: &Head,
) -> Result<Vec<NodeAnswer<TxStatus>>, NodeError> {
    if let Some(objection) = objection::<TxStatus>(node, asof).await? {
        return Ok(vec![objection; claims.len()]);
    }
    let hashes: Vec<TxHash> = claims.iter().map(|claim| claim.hash).collect();
    let claimed: BTreeSet<String> = hashes.iter().map(TxHash::bare).collect();
    let infos = node.ask(|client| client.infos(Side::Solid, &hashes)).await?;
    let missing: Vec<TxHash> =
        hashes.iter().zip(&infos).filter(|(_, info)| info.is_none()).map(|(hash, _)| *hash).collect();
    let pending = node.ask(|client| client.known(&missing)).await?;
    let pending: BTreeSet<TxHash> =
        missing.into_iter().zip(pending).filter(|(_, known)| *known).map(|(hash, _)| hash).collect();
    let mut numbers = BTreeSet::new();
    for info in infos.iter().flatten() {
        numbers.insert(unsigned(info.block_number)?);
    }
    let mut blocks: BTreeMap<u64, WireBlock> = BTreeMap::new();
    for number in numbers.into_iter().filter(|number| *number <= asof.number) {
        let Some(mut block) = node.ask(|client| client.block(Side::Solid, Some(number), true)).await? else {
            continue;
        };
        // Only claimed transactions are kept, because the whole blocks of many claims would fill the memory.
        block.transactions.retain(|transaction| claimed.contains(&transaction.tx_id));
        blocks.insert(number, block);
    }
    claims
        .iter()
        .zip(&infos)
        .map(|(claim, info)| match info {
            Some(info) => status(claim, info, &blocks, asof),
            None if pending.contains(&claim.hash) => Ok(NodeAnswer::Value(TxStatus::NotFinal)),
            None => Ok(NodeAnswer::Value(TxStatus::NotSeen)),
        })
        .collect()
}

fn status(
    claim: &Claim,
    info: &WireInfo,
    blocks: &BTreeMap<u64, WireBlock>,
    asof: &Head,
) -> Result<NodeAnswer<TxStatus>, NodeError> {
    let number = unsigned(info.block_number)?;
    if number > asof.number {
        return Ok(NodeAnswer::Value(TxStatus::NotFinal));
    }
    let id = claim.hash.bare();
    let place = blocks.get(&number).and_then(|block| {
        let transaction = block.transactions.iter().find(|transaction| transaction.tx_id == id)?;
        Some((block, transaction))
    });
    let Some((block, transaction)) = place else {
        return Ok(NodeAnswer::Abstain(format!("its receipt is of block {number}, which does not show it")));
    };
    let Some(head) = block.head()? else { return Err(NodeError::malformed("a block without an id")) };
    let at = BlockRef::from(head);
    let effect = effect::check(&claim.effect, &claim.hash, info, &transaction.raw_data_hex, at)?;
    Ok(NodeAnswer::Value(TxStatus::Settled(Settlement {
        hash: claim.hash,
        block: at,
        cost: cost(info)?,
        effect,
    })))
}

/// The fee is all that was burnt: for energy, for bytes, and for opening an account.
fn cost(info: &WireInfo) -> Result<Cost, NodeError> {
    let units = unsigned(info.receipt.energy_usage_total)?;
    let burnt = unsigned(info.receipt.energy_fee)?;
    let unit_price = u128::from(burnt.checked_div(units).unwrap_or(0));
    Ok(Cost { units, unit_price, fee: RawAmount::from(unsigned(info.fee)?) })
}

/// The answer of one node to what became of a window.
pub(super) async fn fate(
    node: &Arc<Node<TronClient>>,
    question: &FateQuestion,
) -> Result<NodeAnswer<Fate>, NodeError> {
    let Closing::Window { expiration_ms } = question.closing else {
        return Ok(NodeAnswer::Abstain("this chain has no nonces".to_owned()));
    };
    if question.ours.is_empty() {
        return Ok(NodeAnswer::Abstain("there is nothing to look for".to_owned()));
    }
    if let Some(objection) = objection(node, &question.asof).await? {
        return Ok(objection);
    }
    scan(node, question, expiration_ms).await
}

/// Reads solid blocks from the reference on until one is at or beyond the expiration.
async fn scan(
    node: &Arc<Node<TronClient>>,
    question: &FateQuestion,
    expiration_ms: u64,
) -> Result<NodeAnswer<Fate>, NodeError> {
    let last = question.asof.number.min(question.since.saturating_add(LONGEST_SCAN));
    let mut before: Option<Head> = None;
    let mut shown = Sha256::new();
    let mut next = question.since;
    while next <= last {
        let end = last.min(next.saturating_add(SCAN_STEP - 1));
        let blocks = node.ask(|client| client.blocks(Side::Solid, next..=end)).await?;
        if blocks.is_empty() {
            return Ok(NodeAnswer::Abstain(format!("does not show solid block {next}")));
        }
        for block in &blocks {
            let (head, ids, proven) = match look(block, before.as_ref(), question)? {
                BlockScan::Answer(answer) => return Ok(answer),
                BlockScan::Absent { head, ids, proven } => (head, ids, proven),
            };
            if !proven && !receipts_agree(node, head.number, &ids).await? {
                let why = format!("block {} does not show the transactions of its root", head.number);
                return Ok(NodeAnswer::Abstain(why));
            }
            ids.iter().for_each(|id| shown.update(id.as_bytes()));
            // A transaction refers to a block before its expiration. Any other start of the search is a mistake or a lie, and a search
            // from there proves nothing.
            if before.is_none() && head.timestamp_ms >= expiration_ms {
                let why = format!("the search would begin at block {}, after the window", head.number);
                return Ok(NodeAnswer::Abstain(why));
            }
            // Every later block has a parent at or beyond the expiration.
            if head.timestamp_ms >= expiration_ms {
                let expired = Fate::Expired { closing: head.into(), shown: shown.finalize().into() };
                return closed(node, question, expired).await;
            }
            (before, next) = (Some(head), head.number + 1);
        }
    }
    if last < question.asof.number {
        return Ok(NodeAnswer::Abstain(format!("the reference is more than {LONGEST_SCAN} blocks ago")));
    }
    Ok(NodeAnswer::Value(Fate::Open))
}

/// The scan found none of our transactions, which is the proof. If the node nevertheless has a receipt of one, the search began too
/// late or the node contradicts its own blocks, and nothing is proven.
async fn closed(
    node: &Arc<Node<TronClient>>,
    question: &FateQuestion,
    expired: Fate,
) -> Result<NodeAnswer<Fate>, NodeError> {
    let receipts = node.ask(|client| client.infos(Side::Solid, &question.ours)).await?;
    if receipts.iter().any(Option::is_some) {
        let since = question.since;
        return Ok(NodeAnswer::Abstain(format!(
            "has a receipt of what its blocks from {since} on do not show"
        )));
    }
    Ok(NodeAnswer::Value(expired))
}

/// Whether the node has receipts of exactly these transactions for this block.
async fn receipts_agree(
    node: &Arc<Node<TronClient>>,
    number: u64,
    ids: &[TxHash],
) -> Result<bool, NodeError> {
    let receipts = node.ask(|client| client.receipts_of(Side::Solid, number)).await?;
    let shown: BTreeSet<&TxHash> = ids.iter().collect();
    Ok(receipts
        .is_some_and(|receipts| !receipts.is_empty() && receipts.iter().collect::<BTreeSet<_>>() == shown))
}

/// What one block of the scan shows.
enum BlockScan {
    /// None of ours is among these transactions. `proven` if these are certainly all transactions of the block.
    Absent {
        head: Head,
        ids: Vec<TxHash>,
        proven: bool,
    },
    Answer(NodeAnswer<Fate>),
}

/// Looks for our transactions in one block, which must have the id that its header gives and follow the one before it. Ids of
/// transactions are computed from their bytes; the ids that the node names are not used.
fn look(block: &WireBlock, before: Option<&Head>, question: &FateQuestion) -> Result<BlockScan, NodeError> {
    let Some(head) = block.head()? else { return Err(NodeError::malformed("a block without an id")) };
    let abstain =
        |why: &str| Ok(BlockScan::Answer(NodeAnswer::Abstain(format!("block {} {why}", head.number))));
    if !block.is_whole() {
        return abstain("does not have the id that it names");
    }
    if before.is_some_and(|before| before.hash != head.parent) {
        return abstain("does not follow the one before it");
    }
    if head.number == question.asof.number && head != question.asof {
        return Ok(BlockScan::Answer(NodeAnswer::Conflict(format!(
            "has block {} at final height",
            head.hash
        ))));
    }
    let (ids, proven) = block.contents()?;
    let found = ids.iter().find(|id| question.ours.contains(id));
    Ok(match found {
        Some(hash) => {
            BlockScan::Answer(NodeAnswer::Value(Fate::Ours { hash: *hash, block: BlockRef::from(head) }))
        }
        None => BlockScan::Absent { head, ids, proven },
    })
}
