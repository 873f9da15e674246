//! Verdict reads: where claimed transactions stand, and what became of a nonce, as of a final block.
//!
//! Every node is asked, and each answers from one view of its own: it must have the final block in question under the
//! same hash (otherwise it contradicts), a receipt counts only if its block is canonical on that node, and a node that
//! lags or has pruned the state abstains. What they say is put together by `agreement`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alloy_primitives::{Address as EvmAddress, B256, U256};
use payment::{BlockRef, Closing, Cost};
use types::RawAmount;

use super::chain::EvmChain;
use super::client::{At, EvmClient};
use super::effect;
use super::wire::{WireReceipt, WireTransaction};
use crate::agreement::{Agreement, NodeAnswer};
use crate::edge::{Claim, Detail, Fate, FateQuestion, Settlement, TxStatus};
use crate::error::NodeError;
use crate::heads::Head;
use crate::node::{Node, or_abstain};
use crate::settle::level_pools;

impl EvmChain {
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

/// The canonical chain as one node sees it, at the heights that matter.
struct View {
    hashes: BTreeMap<u64, B256>,
}

impl View {
    async fn read(node: &Node<EvmClient>, numbers: BTreeSet<u64>) -> Result<Self, NodeError> {
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let headers = node.ask(|client| client.headers(&numbers)).await?;
        let hashes = numbers
            .into_iter()
            .zip(headers)
            .filter_map(|(number, header)| Some((number, header?.hash)))
            .collect();
        Ok(Self { hashes })
    }

    /// Why this node has no say about that final block, if it has none.
    fn objection<T>(&self, asof: &Head) -> Option<NodeAnswer<T>> {
        match self.hashes.get(&asof.number) {
            None => Some(NodeAnswer::Abstain(format!("has no block {} yet", asof.number))),
            Some(hash) if *hash != B256::from(asof.hash) => {
                Some(NodeAnswer::Conflict(format!("has block {hash} at final height {}", asof.number)))
            }
            Some(_) => None,
        }
    }

    fn is_canonical(&self, block: BlockRef) -> bool {
        self.hashes.get(&block.number) == Some(&B256::from(block.hash))
    }
}

/// One node's answer for each claim.
async fn standings(
    node: &Arc<Node<EvmClient>>,
    claims: &[Claim],
    asof: &Head,
) -> Result<Vec<NodeAnswer<TxStatus>>, NodeError> {
    let hashes: Vec<B256> = claims.iter().map(|claim| claim.hash.into()).collect();
    let (receipts, transactions) = futures::try_join!(
        node.ask(|client| client.receipts(&hashes)),
        node.ask(|client| client.transactions(&hashes)),
    )?;
    // After the receipts, so that a receipt of a block that was undone in between is noticed.
    let mut numbers: BTreeSet<u64> =
        receipts.iter().flatten().map(|receipt| receipt.block_number.to()).collect();
    numbers.insert(asof.number);
    let view = View::read(node, numbers).await?;
    if let Some(objection) = view.objection::<TxStatus>(asof) {
        return Ok(vec![objection; claims.len()]);
    }
    let seen = receipts.iter().zip(&transactions);
    Ok(claims
        .iter()
        .zip(seen)
        .map(|(claim, (receipt, tx))| standing(claim, receipt, tx, &view, asof))
        .collect())
}

fn standing(
    claim: &Claim,
    receipt: &Option<WireReceipt>,
    transaction: &Option<WireTransaction>,
    view: &View,
    asof: &Head,
) -> NodeAnswer<TxStatus> {
    let Some(receipt) = receipt else {
        let Some(transaction) = transaction else { return NodeAnswer::Value(TxStatus::NotSeen) };
        return match transaction.block_number.map(|number| number.to::<u64>()) {
            // It has the transaction in its past and no receipt: it has pruned it, or not indexed it yet.
            Some(number) if number <= asof.number => {
                NodeAnswer::Abstain(format!("has it in block {number} and no receipt of it"))
            }
            Some(_) | None => NodeAnswer::Value(TxStatus::NotFinal),
        };
    };
    if receipt.transaction_hash != B256::from(claim.hash) {
        return NodeAnswer::Conflict("gave the receipt of another transaction".to_owned());
    }
    let block = receipt.block();
    if block.number > asof.number {
        return NodeAnswer::Value(TxStatus::NotFinal);
    }
    if !view.is_canonical(block) {
        return NodeAnswer::Abstain(format!(
            "its receipt is of block {} that is not canonical",
            block.number
        ));
    }
    let price = receipt.effective_gas_price.or(transaction.as_ref().and_then(|tx| tx.gas_price));
    let Some(price) = price else { return NodeAnswer::Abstain("its receipt has no gas price".to_owned()) };
    let fee = U256::from(receipt.gas_used.to::<u64>()) * U256::from(price.to::<u128>());
    NodeAnswer::Value(TxStatus::Settled(Settlement {
        hash: claim.hash,
        block,
        cost: Cost { units: receipt.gas_used.to(), unit_price: price.to(), fee: RawAmount::from_u256(fee) },
        effect: effect::check(&claim.effect, receipt, transaction.as_ref()),
    }))
}

/// One node's answer to what became of a nonce.
async fn fate(node: &Arc<Node<EvmClient>>, question: &FateQuestion) -> Result<NodeAnswer<Fate>, NodeError> {
    let Closing::Nonce { sender, nonce } = question.closing else {
        return Ok(NodeAnswer::Abstain("this chain has no time windows".to_owned()));
    };
    let (sender, asof) = (sender.as_evm(), question.asof);
    let hashes: Vec<B256> = question.ours.iter().map(|hash| B256::from(*hash)).collect();
    let receipts = node.ask(|client| client.receipts(&hashes)).await?;
    let mut numbers: BTreeSet<u64> =
        receipts.iter().flatten().map(|receipt| receipt.block_number.to()).collect();
    numbers.insert(asof.number);
    let view = View::read(node, numbers).await?;
    if let Some(objection) = view.objection(&asof) {
        return Ok(objection);
    }
    for (hash, receipt) in question.ours.iter().zip(&receipts) {
        let Some(block) = receipt.as_ref().map(WireReceipt::block) else { continue };
        if block.number <= asof.number && view.is_canonical(block) {
            return Ok(NodeAnswer::Value(Fate::Ours { hash: *hash, block }));
        }
    }
    if node.ask(|client| client.nonce(sender, At::Number(asof.number))).await? <= nonce {
        return Ok(NodeAnswer::Value(Fate::Open));
    }
    // The nonce is used up and none of our receipts says by whom. That they are missing proves nothing (a pruned
    // index has the same silence), so the transaction that used it must be found.
    let Some(number) = first_block_above(node, sender, nonce, question.since, asof.number).await? else {
        return Ok(NodeAnswer::Abstain(format!("nonce {nonce} was used before block {}", question.since)));
    };
    let blocks = node.ask(|client| client.blocks(number..=number, Detail::Senders)).await?;
    let Some(block) = blocks.into_iter().next() else {
        return Ok(NodeAnswer::Abstain(format!("does not show block {number}")));
    };
    let user = block
        .transactions
        .iter()
        .find(|tx| tx.origin.is_some_and(|(from, used)| from.as_evm() == sender && used == nonce));
    let at = BlockRef::from(block.head);
    Ok(match user {
        Some(tx) if question.ours.contains(&tx.hash) => {
            NodeAnswer::Value(Fate::Ours { hash: tx.hash, block: at })
        }
        Some(tx) => NodeAnswer::Value(Fate::Foreign { hash: tx.hash, block: at }),
        None => NodeAnswer::Abstain(format!("block {number} does not show who used nonce {nonce}")),
    })
}

/// The first block in whose state the sender's count is above this nonce, found by halving.
async fn first_block_above(
    node: &Arc<Node<EvmClient>>,
    sender: EvmAddress,
    nonce: u64,
    since: u64,
    until: u64,
) -> Result<Option<u64>, NodeError> {
    let used_at = async |number: u64| {
        node.ask(|client| client.nonce(sender, At::Number(number))).await.map(|count| count > nonce)
    };
    let (mut open, mut used) = (since.min(until), until);
    if used_at(open).await? {
        return Ok(None);
    }
    while open + 1 < used {
        let middle = open + (used - open) / 2;
        if used_at(middle).await? {
            used = middle;
        } else {
            open = middle;
        }
    }
    Ok(Some(used))
}
