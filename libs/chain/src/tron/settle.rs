//! Verdict reads: where claimed transactions stand, and what became of a window, as of a solid block.
//!
//! Every node is asked, and each answers from its own solid blocks: it must have the final block in question under the
//! same id (otherwise it contradicts), a receipt counts only together with the solid block that holds its transaction,
//! and a node that lags, is limited or keeps no history abstains. What they say is put together by `agreement`.
//!
//! That a transaction can no longer land is never read off an answer about the transaction: `{}` means as little as a
//! timeout. All solid blocks from the reference on are read, linked by their parents, until one is at or beyond the
//! expiration. Whatever comes after that has a parent at or beyond it and cannot include the transaction.
//!
//! A list with a transaction missing would make a second payment of it, so each block's list must be the one that the root
//! in its header stands for. Of some transactions nodes do not show every byte that was hashed; there the root proves
//! nothing, and the receipts that the node keeps for the block, which come from another of its stores, must name the same
//! transactions. What the nodes have shown is compared in any case: see [`Fate::Expired`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use payment::{BlockRef, Closing, Cost};
use sha2::{Digest as _, Sha256};
use types::{RawAmount, TxHash};

use super::chain::{TronChain, head_at};
use super::client::{Side, TronClient};
use super::effect;
use super::wire::{WireBlock, WireInfo, malformed, unsigned};
use crate::agreement::{Agreement, NodeAnswer};
use crate::edge::{Claim, Fate, FateQuestion, Settlement, TxStatus};
use crate::error::NodeError;
use crate::heads::Head;
use crate::node::{Node, or_abstain};
use crate::settle::level_pools;

/// Blocks read at once while scanning: whole ones, of which a node must bring so many within one timeout.
const SCAN_STEP: u64 = 20;
/// A window is a day at most, which is fewer blocks than a reference may be old; further back is no window of ours.
const LONGEST_SCAN: u64 = 65_536;

impl TronChain {
    pub(super) async fn settlements_asof(&self, claims: &[Claim], asof: &Head) -> Vec<Agreement<TxStatus>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let told = self.nodes.ask_all(|node| async move { standings(&node, claims, asof).await }).await;
        let told: Vec<_> = told
            .into_iter()
            .map(|(node, told)| {
                let abstained = |error: NodeError| vec![NodeAnswer::Abstain(error.to_string()); claims.len()];
                (node, told.unwrap_or_else(abstained))
            })
            .collect();
        (0..claims.len())
            .map(|index| {
                let answers = told.iter().map(|(node, told)| (node.clone(), told[index].clone())).collect();
                self.nodes.agreement(level_pools(answers))
            })
            .collect()
    }

    pub(super) async fn fate_asof(&self, question: &FateQuestion) -> Agreement<Fate> {
        let told = self.nodes.ask_all(|node| async move { fate(&node, question).await }).await;
        self.nodes.agreement(told.into_iter().map(|(node, answer)| (node, or_abstain(answer))).collect())
    }
}

/// Why this node has no say about that final block, if it has none.
async fn objection<T>(node: &Arc<Node<TronClient>>, asof: &Head) -> Result<Option<NodeAnswer<T>>, NodeError> {
    Ok(match head_at(node, Side::Solid, asof.number).await? {
        None => Some(NodeAnswer::Abstain(format!("has no solid block {} yet", asof.number))),
        Some(head) if head != *asof => {
            Some(NodeAnswer::Conflict(format!("has block {} at final height {}", head.hash, asof.number)))
        }
        Some(_) => None,
    })
}

/// One node's answer for each claim.
async fn standings(
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
        // Whole blocks of a long page would fill the memory.
        block.transactions.retain(|transaction| claimed.contains(&transaction.tx_id));
        blocks.insert(number, block);
    }
    claims
        .iter()
        .zip(&infos)
        .map(|(claim, info)| match info {
            Some(info) => standing(claim, info, &blocks, asof),
            None if pending.contains(&claim.hash) => Ok(NodeAnswer::Value(TxStatus::NotFinal)),
            None => Ok(NodeAnswer::Value(TxStatus::NotSeen)),
        })
        .collect()
}

fn standing(
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
    let Some(head) = block.head()? else { return Err(malformed("a block without an id")) };
    let at = BlockRef::from(head);
    let effect = effect::check(&claim.effect, &claim.hash, info, &transaction.raw_data_hex, at)?;
    Ok(NodeAnswer::Value(TxStatus::Settled(Settlement {
        hash: claim.hash,
        block: at,
        cost: cost(info)?,
        effect,
    })))
}

/// Energy and what was burnt in all: for energy, for bytes, for opening an account.
fn cost(info: &WireInfo) -> Result<Cost, NodeError> {
    let units = unsigned(info.receipt.energy_usage_total)?;
    let burnt = unsigned(info.receipt.energy_fee)?;
    let unit_price = u128::from(burnt.checked_div(units).unwrap_or(0));
    Ok(Cost { units, unit_price, fee: RawAmount::from(unsigned(info.fee)?) })
}

/// One node's answer to what became of a window.
async fn fate(node: &Arc<Node<TronClient>>, question: &FateQuestion) -> Result<NodeAnswer<Fate>, NodeError> {
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
                Looked::Told(answer) => return Ok(answer),
                Looked::Absent { head, ids, proven } => (head, ids, proven),
            };
            if !proven && !receipts_agree(node, head.number, &ids).await? {
                let why = format!("block {} does not show the transactions of its root", head.number);
                return Ok(NodeAnswer::Abstain(why));
            }
            ids.iter().for_each(|id| shown.update(id.as_bytes()));
            // A transaction refers to a block that is older than its end. One that is not was named by mistake, or by a liar, and
            // a search from there on proves nothing.
            if before.is_none() && head.timestamp_ms >= expiration_ms {
                let why = format!("the search would begin at block {}, after the window", head.number);
                return Ok(NodeAnswer::Abstain(why));
            }
            // Whatever follows has a parent at or beyond the expiration.
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

/// The scan found none of ours. That is the proof, unless the search began too late or the node contradicts its own blocks:
/// then it has a receipt all the same, and has proven nothing.
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

/// Whether the node's receipts of this block are those of these transactions, neither more nor fewer.
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

/// What one block of a scan says.
enum Looked {
    /// None of ours is among these transactions of it; proven, if they are for certain all that it has.
    Absent {
        head: Head,
        ids: Vec<TxHash>,
        proven: bool,
    },
    Told(NodeAnswer<Fate>),
}

/// Looks for ours in one block, which must be whole and follow the one before it. Ids are made from the transactions' bytes:
/// what a node calls them, and how it spells that, decides nothing.
fn look(block: &WireBlock, before: Option<&Head>, question: &FateQuestion) -> Result<Looked, NodeError> {
    let Some(head) = block.head()? else { return Err(malformed("a block without an id")) };
    let abstain = |why: &str| Ok(Looked::Told(NodeAnswer::Abstain(format!("block {} {why}", head.number))));
    if !block.is_whole() {
        return abstain("does not have the id that it names");
    }
    if before.is_some_and(|before| before.hash != head.parent) {
        return abstain("does not follow the one before it");
    }
    if head.number == question.asof.number && head != question.asof {
        return Ok(Looked::Told(NodeAnswer::Conflict(format!("has block {} at final height", head.hash))));
    }
    let (ids, proven) = block.contents()?;
    let found = ids.iter().find(|id| question.ours.contains(id));
    Ok(match found {
        Some(hash) => {
            Looked::Told(NodeAnswer::Value(Fate::Ours { hash: *hash, block: BlockRef::from(head) }))
        }
        None => Looked::Absent { head, ids, proven },
    })
}
