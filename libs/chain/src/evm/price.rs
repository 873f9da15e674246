//! Prices of actions: the market's fee, gas limits and whether the wallet can pay, for many actions at once.
//!
//! Three questions, asked at the same time, however many actions there are. The wallet's balance is compared here and
//! not left to the node: some nodes estimate a transfer for a wallet that has nothing.
//!
//! Invariant: what one call does, however it dies, never keeps another from being priced. Receivers are strangers, and one
//! that is a contract chooses what the node says of it.

use std::collections::BTreeMap;

use alloy_primitives::{Address as EvmAddress, Bytes, U256};
use payment::{Action, GasFee, Quote};
use types::Priority;

use super::chain::EvmChain;
use super::client::{CallRequest, EvmClient};
use super::fees::FeeKind;
use super::gas::{Estimated, PLAIN_TRANSFER_GAS, estimated};
use super::tx::envelope;
use crate::error::{ChainError, NodeError, QuoteError};
use crate::node::{Node, split};

impl EvmChain {
    /// The market's price per gas, within the caps.
    pub async fn fee(&self, priority: Priority) -> Result<GasFee, QuoteError> {
        let policy = &self.config.fees;
        match policy.kind {
            FeeKind::Dynamic => {
                let (blocks, percentile) = (policy.history_blocks, policy.percentile(priority));
                let history = self
                    .nodes
                    .read(move |node| async move {
                        node.ask(|client| client.fee_history(blocks, percentile)).await
                    })
                    .await?;
                Ok(policy.dynamic(&history)?)
            }
            FeeKind::Legacy => {
                let price = self
                    .nodes
                    .read(|node| async move { node.ask(|client| client.gas_price()).await })
                    .await?;
                Ok(policy.legacy(price)?)
            }
        }
    }

    pub(super) async fn price_all(
        &self,
        actions: &[Action],
        priority: Priority,
    ) -> Vec<Result<Quote, QuoteError>> {
        if let Some(error) = actions.iter().find_map(|action| self.check_addresses(action).err()) {
            return vec![Err(error.into()); actions.len()];
        }
        let calls: Vec<CallRequest> = actions
            .iter()
            .map(|action| {
                let (to, value, data) = envelope(action);
                CallRequest { from: action.sender().as_evm(), to, value, data }
            })
            .collect();
        let (fee, limits, balances) =
            futures::join!(self.fee(priority), self.gas_limits(&calls), self.native_balances(&calls));
        let (fee, limits, balances) = match (fee, limits, balances) {
            (Ok(fee), Ok(limits), Ok(balances)) => (fee, limits, balances),
            (Err(error), _, _) => return vec![Err(error); actions.len()],
            (_, Err(error), _) | (_, _, Err(error)) => return vec![Err(error.into()); actions.len()],
        };
        calls
            .iter()
            .zip(limits)
            .map(|(call, limit)| {
                // A call that fails needs the least at any rate: in a wallet without it, that is why, and waiting helps.
                let gas_limit = *limit.as_ref().unwrap_or(&PLAIN_TRANSFER_GAS);
                let quote = Quote::for_gas(gas_limit, fee);
                let needed = call.value.saturating_add(quote.max_cost.as_u256());
                let has = balances.get(&call.from).copied().unwrap_or_default();
                if has < needed {
                    return Err(QuoteError::InsufficientFunds {
                        reason: format!("it has {has} and needs {needed}"),
                    });
                }
                limit.map(|_| quote)
            })
            .collect()
    }

    /// A gas limit for each call. The inner errors are what a node said about that call.
    async fn gas_limits(&self, calls: &[CallRequest]) -> Result<Vec<Result<u64, QuoteError>>, ChainError> {
        let mut told = self.nodes.read(|node| async move { estimates(&node, calls).await }).await?;
        let doubtful = |told: &Estimated| matches!(told, Estimated::Doubtful(_));
        let again: Vec<CallRequest> = calls
            .iter()
            .zip(&told)
            .filter(|(_, told)| doubtful(told))
            .map(|(call, _)| call.clone())
            .collect();
        if !again.is_empty() {
            let mut second = self.second_opinion(&again).await.into_iter();
            for told in told.iter_mut().filter(|told| doubtful(told)) {
                if let Some(better) = second.next() {
                    *told = better;
                }
            }
        }
        let limit = |told: Estimated| match told {
            Estimated::Gas(gas) => self.config.gas.limit(gas),
            Estimated::Refused(error) | Estimated::Doubtful(error) => Err(error),
        };
        Ok(told.into_iter().map(limit).collect())
    }

    /// Words that nobody listed may be about the call or about the node. So every node is asked again, together with a
    /// transfer of nothing to oneself, which can always be estimated: one that fails at that has no say, and where none is
    /// left the calls wait for a node instead of failing.
    async fn second_opinion(&self, calls: &[CallRequest]) -> Vec<Estimated> {
        let control = calls.first().map(|call| CallRequest {
            to: call.from,
            value: U256::ZERO,
            data: Bytes::new(),
            from: call.from,
        });
        let asked: &Vec<CallRequest> = &calls.iter().cloned().chain(control).collect();
        let answers = self
            .nodes
            .ask_all(|node| async move {
                let mut told = estimates(&node, asked).await?;
                match told.pop() {
                    Some(Estimated::Gas(_)) => Ok(told),
                    _ => Err(NodeError::Declined {
                        reason: "it estimates not even a plain transfer".to_owned(),
                    }),
                }
            })
            .await;
        let (answers, failed) = split(answers);
        if answers.is_empty() {
            let nobody = QuoteError::from(self.nodes.nobody(failed));
            return vec![Estimated::Refused(nobody); calls.len()];
        }
        let certainty = |told: &&Estimated| match told {
            Estimated::Gas(_) => 2,
            Estimated::Refused(_) => 1,
            Estimated::Doubtful(_) => 0,
        };
        let best =
            |index: usize| answers.iter().filter_map(|(_, told)| told.get(index)).max_by_key(certainty);
        (0..calls.len()).filter_map(|index| best(index).cloned()).collect()
    }

    async fn native_balances(&self, calls: &[CallRequest]) -> Result<BTreeMap<EvmAddress, U256>, ChainError> {
        let mut holders: Vec<EvmAddress> = calls.iter().map(|call| call.from).collect();
        holders.sort_unstable();
        holders.dedup();
        let of: &Vec<_> = &holders.iter().map(|holder| (*holder, None)).collect();
        let balances =
            self.nodes.read(|node| async move { node.ask(|client| client.balances(of)).await }).await?;
        Ok(holders
            .into_iter()
            .zip(balances)
            .map(|(holder, balance)| (holder, balance.unwrap_or_default()))
            .collect())
    }
}

/// What one node says of each call.
async fn estimates(node: &Node<EvmClient>, calls: &[CallRequest]) -> Result<Vec<Estimated>, NodeError> {
    node.ask(|client| client.estimate_gas(calls)).await?.into_iter().map(estimated).collect()
}
