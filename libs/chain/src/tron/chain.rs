//! A TRON network behind a set of nodes: the [`ChainEdge`] for it.
//!
//! Owns which question goes to one node, to the next on failure, or to all. Verdict reads are in `settle`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::StreamExt as _;
use payment::{Action, AssetRef, BindingKind, BlockRef, Price, Quote, Transfer, Window};
use types::{Address, AddressFormat, ChainName, Priority, RawAmount, TxHash};

use super::classify;
use super::client::{DryRun, Side, TronClient};
use super::config::TronConfig;
use super::message::block_reference;
use super::tx::{SignedTx, UnsignedTx, hash_of};
use super::wire::{malformed, unsigned};
use crate::agreement::{Agreement, NodeAnswer, reached_by};
use crate::broadcast::{Broadcast, BroadcastOutcome};
use crate::edge::{
    Anchor, BalanceOf, Block, ChainEdge, Claim, Detail, Fate, FateQuestion, Plan, Seen, Sighting,
    SignedError, TxStatus,
};
use crate::error::{ChainError, ConfigError, NodeError, QuoteError};
use crate::evm::classify::send_failed;
use crate::evm::erc20;
use crate::heads::Head;
use crate::http::Http;
use crate::node::{Node, NodeHealth, NodeName, NodeSet, or_abstain, split};
use crate::send::send_to_all;

/// One TRON network.
#[derive(Debug)]
pub struct TronChain {
    pub(super) config: TronConfig,
    pub(super) nodes: NodeSet<TronClient>,
}

impl TronChain {
    /// Checks the configuration; nodes are first asked when they are first needed.
    pub fn new(config: TronConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let nodes = config
            .nodes
            .iter()
            .map(|node| {
                let http = Http::new(&node.url, config.timeout())
                    .ok_or_else(|| ConfigError::BadUrl { name: node.name.clone() })?;
                let client = TronClient::new(http, config.network_id, config.at_once);
                Ok(Node::new(config.chain.clone(), &node.name, client))
            })
            .collect::<Result<Vec<_>, ConfigError>>()?;
        let nodes = NodeSet::new(config.chain.clone(), nodes, config.quorum, config.max_lag_blocks)?;
        Ok(Self { config, nodes })
    }

    pub fn config(&self) -> &TronConfig {
        &self.config
    }

    fn of_network(&self, address: &Address) -> Result<(), ChainError> {
        match address.format() {
            AddressFormat::Tron => Ok(()),
            AddressFormat::Evm => {
                Err(ChainError::ForeignAddress { chain: self.config.chain.clone(), what: *address })
            }
        }
    }

    /// Every address in a transfer must be of this network; the same 20 bytes elsewhere are another account.
    pub(super) fn check_addresses(&self, transfer: &Transfer) -> Result<(), ChainError> {
        self.of_network(&transfer.from)?;
        self.of_network(&transfer.to)?;
        if let AssetRef::Token(contract) = &transfer.asset {
            self.of_network(contract)?;
        }
        Ok(())
    }

    /// Reads every node's head and remembers it with the node.
    async fn heads(&self) -> Vec<(NodeName, Result<Head, NodeError>)> {
        self.nodes
            .ask_all(|node| async move {
                let head = newest(&node, Side::Full).await?;
                Ok(node.saw_head(head))
            })
            .await
    }

    async fn solid_heads(&self) -> Vec<(NodeName, Result<Head, NodeError>)> {
        self.nodes.ask_all(|node| async move { newest(&node, Side::Solid).await }).await
    }
}

/// A node's newest block.
async fn newest(node: &Arc<Node<TronClient>>, side: Side) -> Result<Head, NodeError> {
    node.ask(|client| async move {
        let block = client.block(side, None, false).await?;
        let head = block.map(|block| block.head()).transpose()?.flatten();
        head.ok_or_else(|| malformed("no newest block"))
    })
    .await
}

/// A node's block of a number; `None` when it does not have one on that side.
pub(super) async fn head_at(
    node: &Arc<Node<TronClient>>,
    side: Side,
    number: u64,
) -> Result<Option<Head>, NodeError> {
    node.ask(|client| async move {
        let block = client.block(side, Some(number), false).await?;
        Ok(block.map(|block| block.head()).transpose()?.flatten())
    })
    .await
}

#[async_trait]
impl ChainEdge for TronChain {
    fn name(&self) -> &ChainName {
        &self.config.chain
    }

    fn address_format(&self) -> AddressFormat {
        AddressFormat::Tron
    }

    fn binding_kind(&self) -> BindingKind {
        BindingKind::Window
    }

    /// Refers to a solid block, which no fork takes away, and counts from a block's time, not from this machine's. One
    /// node alone raises neither: what is taken is what enough of them reach.
    async fn anchor(&self, sender: &Address) -> Result<Anchor, ChainError> {
        self.of_network(sender)?;
        let (heads, solids) = futures::join!(self.heads(), self.solid_heads());
        let ((heads, failed), (solids, solid_failed)) = (split(heads), split(solids));
        let quorum = self.nodes.quorum();
        let made_ms = reached_by(quorum, heads.iter().map(|(_, head)| head.timestamp_ms).collect());
        let number = reached_by(quorum, solids.iter().map(|(_, head)| head.number).collect());
        let reference = solids.iter().map(|(_, head)| head).find(|head| Some(head.number) == number);
        match (made_ms, reference) {
            (Some(made_ms), Some(block)) => Ok(Anchor::Window {
                block: BlockRef::from(*block),
                window: Window {
                    reference: block_reference(&block.hash),
                    expiration_ms: made_ms.saturating_add(self.config.window_ms),
                    made_ms,
                },
            }),
            (None, _) | (_, None) => Err(self.nodes.nobody(failed.into_iter().chain(solid_failed))),
        }
    }

    async fn quotes(&self, actions: &[Action], _priority: Priority) -> Vec<Result<Quote, QuoteError>> {
        self.price_all(actions).await
    }

    /// A transaction cannot be replaced here.
    fn bump(&self, _previous: &Price, _market: Option<&Price>) -> Option<Quote> {
        None
    }

    fn check_signed(&self, raw: &[u8], plan: &Plan) -> Result<TxHash, SignedError> {
        let expected = UnsignedTx::of(plan)?;
        self.check_addresses(&expected.transfer)
            .map_err(|error| SignedError::Plan { reason: error.to_string() })?;
        let signed = SignedTx::decode(raw)?;
        signed.matches(&expected)?;
        Ok(signed.hash)
    }

    async fn broadcast(&self, raw: &[Vec<u8>]) -> Vec<Broadcast> {
        if raw.is_empty() {
            return Vec::new();
        }
        let at_once = self.config.at_once;
        let send = |node, raw| send_each(node, raw, at_once);
        let outcomes = send_to_all(&self.nodes, raw, self.config.linger(), send).await;
        raw.iter()
            .enumerate()
            .map(|(index, raw)| {
                let nodes = outcomes.iter().map(|(node, all)| (node.clone(), all[index].clone())).collect();
                let broadcast = Broadcast::new(hash_of(raw), nodes);
                let labels = [
                    ("chain", self.config.chain.to_string()),
                    ("outcome", broadcast.merged.label().to_owned()),
                ];
                metrics::counter!("bursar_chain_broadcasts_total", &labels).increment(1);
                broadcast
            })
            .collect()
    }

    async fn lookup(&self, hashes: &[TxHash]) -> Result<Vec<Sighting>, ChainError> {
        let asked = self.nodes.all().len();
        let answers = self.nodes.ask_all(|node| async move { sightings(&node, hashes).await }).await;
        let (answers, failed) = split(answers);
        if answers.is_empty() {
            return Err(self.nodes.nobody(failed));
        }
        let best = |index: usize| {
            let seen = answers.iter().filter_map(|(_, answer)| answer.get(index).copied());
            seen.max_by_key(Seen::certainty).unwrap_or(Seen::Nowhere)
        };
        Ok(hashes
            .iter()
            .enumerate()
            .map(|(index, hash)| Sighting { hash: *hash, seen: best(index), answered: answers.len(), asked })
            .collect())
    }

    async fn head(&self) -> Result<Head, ChainError> {
        let (heads, failed) = split(self.heads().await);
        self.nodes.preferred_head(&heads).ok_or_else(|| self.nodes.nobody(failed))
    }

    async fn finalized(&self) -> Result<Agreement<Head>, ChainError> {
        let (solids, failed) = split(self.solid_heads().await);
        let reached = solids.iter().map(|(_, head)| head.number).collect();
        let Some(number) = reached_by(self.nodes.quorum(), reached) else {
            return Err(self.nodes.nobody(failed));
        };
        let answers = self
            .nodes
            .ask_all(|node| async move {
                Ok(match head_at(&node, Side::Solid, number).await? {
                    Some(head) => NodeAnswer::Value(head),
                    None => NodeAnswer::Abstain(format!("has no solid block {number} yet")),
                })
            })
            .await;
        let answers = answers.into_iter().map(|(node, answer)| (node, or_abstain(answer))).collect();
        Ok(self.nodes.agreement(answers))
    }

    /// A node that has none of them is passed over: it may have forgotten what others still show.
    async fn blocks(&self, numbers: RangeInclusive<u64>, _detail: Detail) -> Result<Vec<Block>, ChainError> {
        let none = AtomicBool::new(false);
        let read = self.nodes.read(|node| {
            let (numbers, none) = (numbers.clone(), &none);
            async move {
                let reason = format!("it does not show block {}", numbers.start());
                let blocks = node.ask(|client| client.blocks(Side::Full, numbers)).await?;
                let blocks = blocks.iter().filter_map(|block| block.block().transpose());
                let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
                if blocks.is_empty() {
                    none.store(true, Ordering::Relaxed);
                    return Err(NodeError::Declined { reason });
                }
                Ok(blocks)
            }
        });
        match read.await {
            Err(_) if none.load(Ordering::Relaxed) => Ok(Vec::new()),
            read => read,
        }
    }

    async fn settlements(&self, claims: &[Claim], asof: &Head) -> Vec<Agreement<TxStatus>> {
        self.settlements_asof(claims, asof).await
    }

    async fn fate(&self, question: &FateQuestion) -> Agreement<Fate> {
        self.fate_asof(question).await
    }

    async fn balances(&self, of: &[BalanceOf]) -> Result<Vec<Option<RawAmount>>, ChainError> {
        for of in of {
            self.of_network(&of.holder)?;
            if let AssetRef::Token(contract) = &of.asset {
                self.of_network(contract)?;
            }
        }
        self.nodes.read(|node| async move { balances(&node, of).await }).await
    }

    fn nodes(&self) -> Vec<NodeHealth> {
        self.nodes.health()
    }

    async fn probe(&self) -> Vec<NodeHealth> {
        self.heads().await;
        self.nodes.health()
    }
}

/// One by one, because there are no batches: each transaction's answer is its own.
async fn send_each(
    node: Arc<Node<TronClient>>,
    raw: Arc<[Vec<u8>]>,
    at_once: usize,
) -> Vec<BroadcastOutcome> {
    let sends: Vec<_> = (0..raw.len())
        .map(|index| {
            let (node, raw) = (node.clone(), raw.clone());
            async move {
                match node.ask(|client| client.send(&raw[index])).await {
                    Ok(answer) => classify::sent(&answer),
                    Err(error) => send_failed(&error),
                }
            }
        })
        .collect();
    futures::stream::iter(sends).buffered(at_once).collect().await
}

/// Where one node has seen each of these.
async fn sightings(node: &Arc<Node<TronClient>>, hashes: &[TxHash]) -> Result<Vec<Seen>, NodeError> {
    let infos = node.ask(|client| client.infos(Side::Full, hashes)).await?;
    let mut numbers = BTreeSet::new();
    for info in infos.iter().flatten() {
        numbers.insert(unsigned(info.block_number)?);
    }
    let mut blocks = BTreeMap::new();
    for number in numbers {
        if let Some(head) = head_at(node, Side::Full, number).await? {
            blocks.insert(number, BlockRef::from(head));
        }
    }
    let missing: Vec<TxHash> =
        hashes.iter().zip(&infos).filter(|(_, info)| info.is_none()).map(|(hash, _)| *hash).collect();
    let known = node.ask(|client| client.known(&missing)).await?;
    let pending: BTreeSet<TxHash> =
        missing.into_iter().zip(known).filter(|(_, known)| *known).map(|(hash, _)| hash).collect();
    let seen = |hash: &TxHash, number: Option<u64>| match number.and_then(|number| blocks.get(&number)) {
        Some(block) => Seen::Included(*block),
        None if pending.contains(hash) => Seen::Pending,
        None => Seen::Nowhere,
    };
    Ok(hashes
        .iter()
        .zip(&infos)
        .map(|(hash, info)| seen(hash, info.as_ref().and_then(|info| u64::try_from(info.block_number).ok())))
        .collect())
}

/// Balances as one node has them: TRX of accounts, tokens by their `balanceOf`.
async fn balances(
    node: &Arc<Node<TronClient>>,
    of: &[BalanceOf],
) -> Result<Vec<Option<RawAmount>>, NodeError> {
    let holders: Vec<Address> =
        of.iter().filter(|of| of.asset == AssetRef::Native).map(|of| of.holder).collect();
    let calls: Vec<DryRun> = of
        .iter()
        .filter_map(|of| match of.asset {
            AssetRef::Native => None,
            AssetRef::Token(contract) => Some(DryRun {
                owner: of.holder,
                contract,
                data: erc20::balance_of_calldata(of.holder.as_evm()).to_vec(),
            }),
        })
        .collect();
    let (accounts, words) = futures::try_join!(
        node.ask(|client| client.accounts(&holders)),
        node.ask(|client| client.dry_runs(&calls))
    )?;
    let (mut accounts, mut words) = (accounts.into_iter(), words.into_iter());
    of.iter()
        .map(|of| match of.asset {
            AssetRef::Native => {
                let sun = accounts.next().flatten().map_or(0, |account| account.balance);
                Ok(Some(RawAmount::from(unsigned(sun)?)))
            }
            AssetRef::Token(_) => {
                let word = words.next().and_then(|answer| answer.constant_result.into_iter().next());
                let word = word.and_then(|word| alloy_primitives::hex::decode(word).ok());
                Ok(word.and_then(|word| erc20::decode_uint(&word)).map(RawAmount::from_u256))
            }
        })
        .collect()
}
