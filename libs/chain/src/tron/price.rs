//! Prices of actions: what is burnt at most, the limit that is signed, and whether the wallet can pay.
//!
//! The node runs each token transfer without sending it: that gives its energy, to a holder or to an empty address, and
//! shows one that would fail before anything is signed. Nodes have no batches; questions go out side by side.

use std::collections::BTreeMap;

use payment::{Action, AssetRef, Price, Quote, Transfer};
use types::{Address, RawAmount};

use super::chain::TronChain;
use super::client::DryRun;
use super::cost::{Prices, Staked, with_margin};
use super::message::transfer_data;
use super::tx::{fits, most_bandwidth};
use super::wire::{WireConstant, malformed, plain, unsigned};
use crate::error::{AboveCap, ChainError, NodeError, QuoteError};
use crate::words::shorten;

/// What one node said about a batch of transfers.
struct Market {
    prices: Prices,
    /// By sender: balance in sun, and what is staked and not used.
    wallets: BTreeMap<Address, (u64, Staked)>,
    /// Whether each receiver has an account; tokens need none.
    activated: BTreeMap<Address, bool>,
    /// Energy of each token transfer, or why it would fail; in the order of the transfers.
    energy: Vec<Result<u64, QuoteError>>,
}

impl TronChain {
    pub(super) async fn price_all(&self, actions: &[Action]) -> Vec<Result<Quote, QuoteError>> {
        let transfers: Vec<Result<Transfer, ChainError>> =
            actions.iter().map(|action| self.payable(action)).collect();
        let good: Vec<Transfer> =
            transfers.iter().filter_map(|transfer| transfer.as_ref().ok().copied()).collect();
        let good = &good;
        let market = self.nodes.read(|node| async move { node.ask(|client| ask(client, good)).await }).await;
        let mut market = match market {
            Ok(market) => market,
            Err(error) => {
                let each = |transfer: Result<Transfer, ChainError>| {
                    Err(transfer.err().unwrap_or(error.clone()).into())
                };
                return transfers.into_iter().map(each).collect();
            }
        };
        let mut energy = std::mem::take(&mut market.energy).into_iter();
        transfers
            .into_iter()
            .map(|transfer| {
                let transfer = transfer?;
                let energy = match transfer.asset {
                    AssetRef::Native => Ok(0),
                    AssetRef::Token(_) => energy.next().unwrap_or(Ok(0)),
                };
                self.price(&transfer, energy?, &mut market)
            })
            .collect()
    }

    fn payable(&self, action: &Action) -> Result<Transfer, ChainError> {
        let transfer = match action {
            Action::Pay(transfer) => transfer,
            Action::Cancel { .. } => return Err(ChainError::NotOfThisChain { what: "cancellation" }),
            Action::Call(_) => return Err(ChainError::NotOfThisChain { what: "contract call" }),
        };
        self.check_addresses(transfer)?;
        if !fits(transfer) {
            return Err(ChainError::NotOfThisChain { what: "amount as large as this" });
        }
        Ok(*transfer)
    }

    /// One price, taking what it uses of staked resources out of `market`.
    fn price(&self, transfer: &Transfer, energy: u64, market: &mut Market) -> Result<Quote, QuoteError> {
        let (prices, costs) = (market.prices, &self.config.costs);
        let (balance, staked) = market.wallets.entry(transfer.from).or_default();
        let bytes = most_bandwidth(transfer).unwrap_or(u64::MAX);
        let native = transfer.asset == AssetRef::Native;
        let opens = native && !market.activated.get(&transfer.to).copied().unwrap_or(false);
        let besides = staked.bandwidth_sun(bytes, opens, &prices);
        let besides = if opens { besides.saturating_add(prices.activation_sun) } else { besides };
        let (mut limit, mut burnt) = (0, 0);
        if !native {
            if prices.energy_sun > costs.max_energy_price_sun {
                let (needed, cap) = (prices.energy_sun.into(), costs.max_energy_price_sun.into());
                return Err(AboveCap { needed, cap }.into());
            }
            let energy = with_margin(energy, costs.energy_margin_permille);
            // The network counts staked energy against the limit too: it must cover all of it.
            limit = energy.saturating_mul(prices.energy_sun);
            let cap = prices.max_fee_limit_sun.min(costs.max_fee_limit_sun);
            if limit > cap {
                return Err(QuoteError::GasAboveCap { needed: energy, cap: cap / prices.energy_sun });
            }
            burnt = staked.energy_sun(energy, &prices);
        }
        let amount = if native { transfer.amount } else { RawAmount::ZERO };
        let max_cost = RawAmount::from(besides.saturating_add(burnt));
        let needed = amount.checked_add(max_cost);
        let has = RawAmount::from(*balance);
        if needed.is_none_or(|needed| has < needed) {
            let needed = needed.unwrap_or(RawAmount::MAX);
            return Err(QuoteError::InsufficientFunds { reason: format!("it has {has} and needs {needed}") });
        }
        Ok(Quote { price: Price::FeeLimit { sun: limit }, max_cost })
    }
}

async fn ask(client: &super::TronClient, transfers: &[Transfer]) -> Result<Market, NodeError> {
    let senders = distinct(transfers.iter().map(|transfer| transfer.from));
    let natives = transfers.iter().filter(|transfer| transfer.asset == AssetRef::Native);
    let receivers = distinct(natives.map(|transfer| transfer.to));
    let calls: Vec<DryRun> = transfers
        .iter()
        .filter_map(|transfer| match transfer.asset {
            AssetRef::Native => None,
            AssetRef::Token(contract) => Some(DryRun {
                owner: transfer.from,
                contract,
                data: transfer_data(transfer.to.as_evm(), transfer.amount.as_u256()),
            }),
        })
        .collect();
    let (parameters, accounts, resources, opened, runs) = futures::try_join!(
        client.parameters(),
        client.accounts(&senders),
        client.resources(&senders),
        client.accounts(&receivers),
        client.dry_runs(&calls),
    )?;
    let prices =
        Prices::of(&parameters).ok_or_else(|| malformed("prices are missing from its parameters"))?;
    let mut wallets = BTreeMap::new();
    for ((sender, account), resources) in senders.into_iter().zip(accounts).zip(resources) {
        let balance = unsigned(account.map_or(0, |account| account.balance))?;
        wallets.insert(sender, (balance, Staked::of(&resources)));
    }
    let activated =
        receivers.into_iter().zip(opened).map(|(receiver, account)| (receiver, account.is_some())).collect();
    let energy = runs.iter().map(energy_of).collect::<Result<_, _>>()?;
    Ok(Market { prices, wallets, activated, energy })
}

fn distinct(addresses: impl Iterator<Item = Address>) -> Vec<Address> {
    let mut all: Vec<Address> = addresses.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The energy of a tried call. One that reverts still says `result: true`; its own result is the one that counts. An answer
/// without either, or with the node's own trouble in it, says nothing about the call: another node is asked.
fn energy_of(run: &WireConstant) -> Result<Result<u64, QuoteError>, NodeError> {
    let reason = shorten(&plain(&run.result.message));
    let refused = matches!(run.result.code.as_str(), "CONTRACT_VALIDATE_ERROR" | "CONTRACT_EXE_ERROR");
    if !run.result.result && !refused {
        let reason = format!("a call was not tried: {} {reason}", run.result.code);
        return Err(NodeError::Declined { reason: shorten(&reason) });
    }
    if refused || run.transaction.ret.iter().any(|ret| ret.ret == "FAILED") {
        return Ok(Err(QuoteError::WouldRevert { reason }));
    }
    match unsigned(run.energy_used)? {
        0 => Err(malformed("a call without energy")),
        energy => Ok(Ok(energy)),
    }
}
