//! Prices of actions: the market's fee, gas limits and whether the wallet can pay, for many actions at once.
//!
//! Three questions, asked at the same time, however many actions there are. The wallet's balance is compared here and
//! not left to the node: some nodes estimate a transfer for a wallet that has nothing.

use std::collections::BTreeMap;

use alloy_primitives::{Address as EvmAddress, U256};
use types::Priority;

use super::chain::EvmChain;
use super::client::CallRequest;
use super::fees::{FeeKind, FeeQuote};
use super::gas::estimate_failed;
use super::tx::envelope;
use crate::edge::{Action, Price};
use crate::error::{ChainError, NodeError, QuoteError};

impl EvmChain {
    /// The market's price per gas, within the caps.
    pub async fn fee(&self, priority: Priority) -> Result<FeeQuote, QuoteError> {
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
    ) -> Vec<Result<Price, QuoteError>> {
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
                let price = Price::Gas { gas_limit: limit?, fee };
                let needed = call.value.saturating_add(price.max_cost().as_u256());
                let has = balances.get(&call.from).copied().unwrap_or_default();
                if has < needed {
                    return Err(QuoteError::InsufficientFunds {
                        reason: format!("it has {has} and needs {needed}"),
                    });
                }
                Ok(price)
            })
            .collect()
    }

    /// A gas limit for each call. The inner errors are what a node said about that call.
    async fn gas_limits(&self, calls: &[CallRequest]) -> Result<Vec<Result<u64, QuoteError>>, ChainError> {
        let policy = self.config.gas;
        self.nodes
            .read(|node| async move {
                let estimates = node.ask(|client| client.estimate_gas(calls)).await?;
                let limit = |estimate: Result<u64, NodeError>| match estimate {
                    Ok(estimate) => Ok(policy.limit(estimate)),
                    Err(error) => estimate_failed(&error).map(Err).ok_or(error),
                };
                estimates.into_iter().map(limit).collect()
            })
            .await
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
