//! The [`ChainEdge`] of an EVM chain. It decides which question goes to one node, to the next on failure, or to all nodes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use alloy_primitives::Address as EvmAddress;
use async_trait::async_trait;
use payment::{Action, AssetRef, Binding, BindingKind, BlockRef, Price, Quote};
use types::{Address, AddressFormat, ChainName, Priority, RawAmount, TxHash};

use super::classify;
use super::client::{At, EvmClient};
use super::config::{EvmConfig, Finality};
use super::settle::{fate, statuses};
use super::tx::{SignedTx, UnsignedTx, hash_of};
use super::wire::WireTransaction;
use crate::broadcast::{Broadcast, BroadcastOutcome};
use crate::edge::{
    Anchor, BalanceOf, Block, ChainEdge, Claim, Detail, Fate, FateQuestion, Plan, Seen, Sighting,
    SignedError, TxStatus,
};
use crate::error::{ChainError, ConfigError, NodeError, QuoteError};
use crate::heads::Head;
use crate::lane::NonceCounts;
use crate::node::agreement::{Agreement, NodeAnswer, reached_by};
use crate::node::jsonrpc::JsonRpc;
use crate::node::set::{Named, split};
use crate::node::{Node, NodeHealth, NodeSet};

#[derive(Debug)]
pub struct EvmChain {
    pub(super) config: EvmConfig,
    pub(super) nodes: NodeSet<EvmClient>,
}

impl EvmChain {
    /// Checks the configuration. Nodes are first asked when they are first needed.
    pub fn new(config: EvmConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let client = |url: &str| {
            let rpc = JsonRpc::new(url, config.timeout(), config.max_batch)?;
            Some(EvmClient::new(rpc, config.chain_id))
        };
        let chain = config.chain.clone();
        let nodes = NodeSet::new(chain, &config.nodes, config.quorum, config.max_lag_blocks, client)?;
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

    /// Every address of an action must be of this family; the same 20 bytes are another account on another family.
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

    /// Reads the head of every node and records it with the node.
    async fn heads(&self) -> Named<Result<Head, NodeError>> {
        self.nodes
            .ask_all(|node| async move {
                let header = node.ask(|client| client.header(At::Latest)).await?;
                let header = header.ok_or_else(|| NodeError::malformed("no latest block"))?;
                Ok(node.saw_head(header.head()))
            })
            .await
    }

    /// The number up to which each node calls the chain final.
    async fn final_numbers(&self) -> Named<Result<u64, NodeError>> {
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
                            .ok_or_else(|| NodeError::malformed("no finalized block"))
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
        // With fewer answers than a quorum, one node alone could move the lane permanently.
        let agreed = if pools.len() < quorum { None } else { reached_by(quorum, pools) };
        Ok(Anchor::Nonce(NonceCounts { mined, pending, agreed }))
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
        self.nodes.broadcast(raw, self.config.linger(), hash_of, send_raw).await
    }

    async fn lookup(&self, hashes: &[TxHash]) -> Result<Vec<Sighting>, ChainError> {
        let seen = |tx: Option<WireTransaction>| match tx.map(|tx| (tx.block_number, tx.block_hash)) {
            None => Seen::Nowhere,
            Some((Some(number), Some(hash))) => {
                Seen::Included(BlockRef { number: number.to(), hash: hash.into() })
            }
            Some((None, _) | (_, None)) => Seen::Pending,
        };
        let ask = |node: Arc<Node<EvmClient>>| async move {
            let found = node.ask(|client| client.transactions(hashes)).await?;
            Ok(found.into_iter().map(seen).collect())
        };
        self.nodes.lookup(hashes, ask).await
    }

    async fn head(&self) -> Result<Head, ChainError> {
        self.nodes.preferred_head(self.heads().await)
    }

    async fn finalized(&self) -> Result<Agreement<Head>, ChainError> {
        let number = self.nodes.reached(self.final_numbers().await)?;
        let ask = |node: Arc<Node<EvmClient>>| async move {
            let header = node.ask(|client| client.header(At::Number(number))).await?;
            Ok(match header {
                Some(header) => NodeAnswer::Value(header.head()),
                None => NodeAnswer::Abstain(format!("has no block {number} yet")),
            })
        };
        Ok(self.nodes.agree(ask).await)
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
        self.nodes.agree_on_claims(claims, |node| async move { statuses(&node, claims, asof).await }).await
    }

    async fn fate(&self, question: &FateQuestion) -> Agreement<Fate> {
        self.nodes.agree(|node| async move { fate(&node, question).await }).await
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
