//! An EVM chain behind a set of nodes: the [`ChainEdge`] for it.
//!
//! Owns which question goes to one node, to the next on failure, or to all. Verdict reads are in `settle`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use alloy_primitives::{Address as EvmAddress, B256};
use async_trait::async_trait;
use payment::{Action, AssetRef, Binding, BindingKind, BlockRef, Price, Quote};
use types::{Address, AddressFormat, ChainName, Priority, RawAmount, TxHash};

use super::classify;
use super::client::{At, EvmClient};
use super::config::{EvmConfig, Finality};
use super::tx::{SignedTx, UnsignedTx, hash_of};
use crate::agreement::{Agreement, NodeAnswer, reached_by};
use crate::broadcast::{Broadcast, BroadcastOutcome};
use crate::edge::{
    Anchor, BalanceOf, Block, ChainEdge, Claim, Detail, Fate, FateQuestion, Plan, Seen, Sighting,
    SignedError, TxStatus,
};
use crate::error::{ChainError, ConfigError, NodeError, QuoteError};
use crate::heads::Head;
use crate::jsonrpc::JsonRpc;
use crate::lane::Sight;
use crate::node::{Node, NodeHealth, NodeName, NodeSet, or_abstain, split};
use crate::send::send_to_all;

/// One EVM chain.
#[derive(Debug)]
pub struct EvmChain {
    pub(super) config: EvmConfig,
    pub(super) nodes: NodeSet<EvmClient>,
}

impl EvmChain {
    /// Checks the configuration; nodes are first asked when they are first needed.
    pub fn new(config: EvmConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let nodes = config
            .nodes
            .iter()
            .map(|node| {
                let rpc = JsonRpc::new(&node.url, config.timeout(), config.max_batch)
                    .ok_or_else(|| ConfigError::BadUrl { name: node.name.clone() })?;
                Ok(Node::new(config.chain.clone(), &node.name, EvmClient::new(rpc, config.chain_id)))
            })
            .collect::<Result<Vec<_>, ConfigError>>()?;
        let nodes = NodeSet::new(config.chain.clone(), nodes, config.quorum, config.max_lag_blocks)?;
        Ok(Self { config, nodes })
    }

    pub fn chain_id(&self) -> u64 {
        self.config.chain_id
    }

    pub fn config(&self) -> &EvmConfig {
        &self.config
    }

    /// The unsigned transaction of a plan, exactly as the signer should build it.
    pub fn unsigned(&self, plan: &Plan) -> Result<UnsignedTx, SignedError> {
        let unfit = |reason: &str| SignedError::Plan { reason: reason.to_owned() };
        let Binding::Nonce { sender, nonce } = plan.binding else {
            return Err(unfit("bound to a time window"));
        };
        let Price::Gas { limit, fee } = plan.price else { return Err(unfit("priced without gas")) };
        if plan.action.sender() != sender {
            return Err(unfit("the action's sender is not the binding's"));
        }
        Ok(UnsignedTx::new(self.config.chain_id, nonce, &plan.action, limit, fee))
    }

    pub(super) fn evm(&self, address: &Address) -> Result<EvmAddress, ChainError> {
        match address.format() {
            AddressFormat::Evm => Ok(address.as_evm()),
            AddressFormat::Tron => {
                Err(ChainError::ForeignAddress { chain: self.config.chain.clone(), what: *address })
            }
        }
    }

    /// Every address in an action must be of this kind of chain; the same 20 bytes elsewhere are another account.
    pub(super) fn check_addresses(&self, action: &Action) -> Result<(), ChainError> {
        self.evm(&action.sender())?;
        match action {
            Action::Pay(transfer) => {
                self.evm(&transfer.to)?;
                transfer.asset.contract().map_or(Ok(()), |contract| self.evm(&contract).map(drop))
            }
            Action::Cancel { .. } => Ok(()),
            Action::Call(call) => self.evm(&call.contract).map(drop),
        }
    }

    /// Reads every node's head and remembers it with the node.
    async fn heads(&self) -> Vec<(NodeName, Result<Head, NodeError>)> {
        self.nodes
            .ask_all(|node| async move {
                let header = node.ask(|client| client.header(At::Latest)).await?;
                let header = header.ok_or_else(|| malformed("no latest block"))?;
                Ok(node.saw_head(header.head()))
            })
            .await
    }

    /// The number up to which each node calls the chain final.
    async fn final_numbers(&self) -> Vec<(NodeName, Result<u64, NodeError>)> {
        match self.config.finality {
            Finality::Depth(depth) => self
                .heads()
                .await
                .into_iter()
                .map(|(node, head)| (node, head.map(|head| head.number.saturating_sub(depth))))
                .collect(),
            Finality::Tag => {
                self.nodes
                    .ask_all(|node| async move {
                        let header = node.ask(|client| client.header(At::Finalized)).await?;
                        header
                            .map(|header| header.head().number)
                            .ok_or_else(|| malformed("no finalized block"))
                    })
                    .await
            }
        }
    }
}

#[async_trait]
impl ChainEdge for EvmChain {
    fn name(&self) -> &ChainName {
        &self.config.chain
    }

    fn address_format(&self) -> AddressFormat {
        AddressFormat::Evm
    }

    fn binding_kind(&self) -> BindingKind {
        BindingKind::Nonce
    }

    async fn anchor(&self, sender: &Address) -> Result<Anchor, ChainError> {
        let sender = self.evm(sender)?;
        let answers =
            self.nodes.ask_all(|node| async move { node.ask(|client| client.nonces(sender)).await }).await;
        let (counts, failed) = split(answers);
        let quorum = self.nodes.quorum();
        let pools: Vec<u64> = counts.iter().map(|(_, (mined, pending))| *pending.max(mined)).collect();
        let mined = reached_by(quorum, counts.iter().map(|(_, (mined, _))| *mined).collect());
        let (Some(mined), Some(pending)) = (mined, pools.iter().copied().max()) else {
            return Err(self.nodes.nobody(failed));
        };
        // With fewer answers than that, one node alone would move the lane for good.
        let agreed = if pools.len() < quorum { None } else { reached_by(quorum, pools) };
        Ok(Anchor::Nonce(Sight { mined, pending, agreed }))
    }

    async fn quotes(&self, actions: &[Action], priority: Priority) -> Vec<Result<Quote, QuoteError>> {
        self.price_all(actions, priority).await
    }

    fn bump(&self, previous: &Price, market: Option<&Price>) -> Option<Quote> {
        let Price::Gas { limit, fee } = previous else { return None };
        let market = market.and_then(|market| match market {
            Price::Gas { fee, .. } => Some(fee),
            Price::FeeLimit { .. } => None,
        });
        let fee = self.config.fees.bump(fee, market)?;
        Some(Quote::for_gas(*limit, fee))
    }

    fn check_signed(&self, raw: &[u8], plan: &Plan) -> Result<TxHash, SignedError> {
        self.check_addresses(&plan.action)
            .map_err(|error| SignedError::Plan { reason: error.to_string() })?;
        let expected = self.unsigned(plan)?;
        let signed = SignedTx::decode(raw)?;
        signed.matches(plan.action.sender().as_evm(), &expected)?;
        Ok(signed.hash)
    }

    async fn broadcast(&self, raw: &[Vec<u8>]) -> Vec<Broadcast> {
        if raw.is_empty() {
            return Vec::new();
        }
        let outcomes = send_to_all(&self.nodes, raw, self.config.linger(), send_raw).await;
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
        let wanted: &Vec<B256> = &hashes.iter().map(|hash| B256::from(*hash)).collect();
        let asked = self.nodes.all().len();
        let answers = self
            .nodes
            .ask_all(|node| async move { node.ask(|client| client.transactions(wanted)).await })
            .await;
        let (answers, failed) = split(answers);
        if answers.is_empty() {
            return Err(self.nodes.nobody(failed));
        }
        let best = |index: usize| {
            let seen = |answer: &Vec<Option<super::wire::WireTransaction>>| match answer.get(index) {
                None | Some(None) => Seen::Nowhere,
                Some(Some(tx)) => match (tx.block_number, tx.block_hash) {
                    (Some(number), Some(hash)) => {
                        Seen::Included(BlockRef { number: number.to(), hash: hash.into() })
                    }
                    (None, _) | (_, None) => Seen::Pending,
                },
            };
            answers
                .iter()
                .map(|(_, answer)| seen(answer))
                .max_by_key(Seen::certainty)
                .unwrap_or(Seen::Nowhere)
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
        let (numbers, failed) = split(self.final_numbers().await);
        let reached = numbers.iter().map(|(_, number)| *number).collect();
        let Some(number) = reached_by(self.nodes.quorum(), reached) else {
            return Err(self.nodes.nobody(failed));
        };
        let answers = self
            .nodes
            .ask_all(|node| async move {
                let header = node.ask(|client| client.header(At::Number(number))).await?;
                Ok(match header {
                    Some(header) => NodeAnswer::Value(header.head()),
                    None => NodeAnswer::Abstain(format!("has no block {number} yet")),
                })
            })
            .await;
        let answers = answers.into_iter().map(|(node, answer)| (node, or_abstain(answer))).collect();
        Ok(self.nodes.agreement(answers))
    }

    async fn blocks(&self, numbers: RangeInclusive<u64>, detail: Detail) -> Result<Vec<Block>, ChainError> {
        self.nodes
            .read(|node| {
                let numbers = numbers.clone();
                async move { node.ask(|client| client.blocks(numbers, detail)).await }
            })
            .await
    }

    async fn settlements(&self, claims: &[Claim], asof: &Head) -> Vec<Agreement<TxStatus>> {
        self.settlements_asof(claims, asof).await
    }

    async fn fate(&self, question: &FateQuestion) -> Agreement<Fate> {
        self.fate_asof(question).await
    }

    async fn balances(&self, of: &[BalanceOf]) -> Result<Vec<Option<RawAmount>>, ChainError> {
        let wanted: &Vec<_> = &of
            .iter()
            .map(|of| {
                let token = match &of.asset {
                    AssetRef::Native => None,
                    AssetRef::Token(contract) => Some(self.evm(contract)?),
                };
                Ok((self.evm(&of.holder)?, token))
            })
            .collect::<Result<Vec<_>, ChainError>>()?;
        let balances =
            self.nodes.read(|node| async move { node.ask(|client| client.balances(wanted)).await }).await?;
        Ok(balances.into_iter().map(|balance| balance.map(RawAmount::from_u256)).collect())
    }

    fn nodes(&self) -> Vec<NodeHealth> {
        self.nodes.health()
    }

    async fn probe(&self) -> Vec<NodeHealth> {
        self.heads().await;
        self.nodes.health()
    }
}

async fn send_raw(node: Arc<Node<EvmClient>>, raw: Arc<[Vec<u8>]>) -> Vec<BroadcastOutcome> {
    match node.ask(|client| client.send_raw(&raw)).await {
        Ok(replies) => replies.iter().map(classify::sent).collect(),
        Err(error) => vec![classify::send_failed(&error); raw.len()],
    }
}

fn malformed(reason: &str) -> NodeError {
    NodeError::Malformed { reason: reason.to_owned() }
}
