//! What an attempt will cost, and whether its wallet can pay that. Nothing is bound yet: whoever cannot go on waits without a
//! nonce.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chain::{Action, Anchor, AssetRef, BalanceOf, ChainEdge as _, ChainError, EvmChain, FeeQuote, Price, QuoteError};
use futures::StreamExt as _;
use types::{Address, Priority, RawAmount};

use super::batch::{Bench, Ended, Item};
use crate::chains::ChainHandle;
use crate::job::{Attempt, Event, Fee};

/// A job with its price.
#[derive(Debug, Clone)]
pub struct Priced {
    pub item: Item,
    pub fee: Fee,
    /// The most that leaves the wallet in the chain's own coin.
    pub cost: RawAmount,
}

/// What the chain says of a wallet.
#[derive(Debug, Clone, Copy)]
pub struct WalletView {
    pub mined: u64,
    pub pending: u64,
    pub balance: RawAmount,
    /// A block at which no nonce from `pending` on was used.
    pub head: u64,
}

/// Prices per gas, used again for a moment: a batch of a hundred asks once.
#[derive(Debug, Default)]
pub struct FeeCache {
    known: Mutex<HashMap<Priority, (Instant, u64, FeeQuote)>>,
}

impl FeeCache {
    async fn fee(&self, chain: &ChainHandle, priority: Priority, ttl: Duration) -> Result<FeeQuote, QuoteError> {
        let revision = chain.settings.revision;
        if let Some((at, of, fee)) = self.lock().get(&priority)
            && at.elapsed() < ttl
            && *of == revision
        {
            return Ok(*fee);
        }
        let fee = chain.edge.fee(priority).await?;
        self.lock().insert(priority, (Instant::now(), revision, fee));
        Ok(fee)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Priority, (Instant, u64, FeeQuote)>> {
        // A price that was half written costs one more question.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bench {
    /// Prices payments. What cannot be priced comes back with its reason.
    pub async fn price(&self, fees: &FeeCache, items: Vec<Item>) -> (Vec<Priced>, Vec<Ended>) {
        let quotes = futures::stream::iter(items)
            .map(|item| async move {
                let outcome = self.price_one(fees, &item).await;
                (item, outcome)
            })
            .buffered(self.config.estimate_concurrency.max(1))
            .collect::<Vec<_>>()
            .await;
        let (mut priced, mut ended) = (Vec::new(), Vec::new());
        for (item, outcome) in quotes {
            match outcome {
                Ok((fee, cost)) => priced.push(Priced { item, fee, cost }),
                Err(event) => ended.push((item, event)),
            }
        }
        (priced, ended)
    }

    async fn price_one(&self, fees: &FeeCache, item: &Item) -> Result<(Fee, RawAmount), Event> {
        let blocked = |reason: String| Event::Blocked { reason };
        if !item.job.asset_enabled {
            return Err(blocked(format!("{} on {} is disabled", item.job.symbol, item.job.chain)));
        }
        let Some(action) = item.job.pay() else { return Err(blocked("no wallet pays it yet".to_owned())) };
        let fee = fees.fee(&self.chain, item.job.priority, self.config.price_ttl);
        let (fee, gas_limit) = futures::join!(fee, self.chain.edge.gas_limit(&action));
        let (fee, gas_limit) = fee.and_then(|fee| Ok((fee, gas_limit?))).map_err(|error| unpriced(&error))?;
        self.within_caps(&Price::Gas { gas_limit, fee }, item.job.native_amount())
    }

    /// The price of another attempt at a nonce already held, above that of `previous`.
    pub async fn reprice(
        &self,
        fees: &FeeCache,
        item: &Item,
        action: &Action,
        previous: Option<&Attempt>,
    ) -> Result<(Fee, RawAmount), Event> {
        let fee = fees.fee(&self.chain, item.job.priority, self.config.price_ttl).await;
        let gas = self.chain.edge.gas_limit(action).await;
        let before = previous.and_then(|attempt| attempt.fee);
        // An estimate that fails now (the payment may just have landed) is no reason to change the limit.
        let gas_limit = match (gas, before, action) {
            (Ok(gas), _, _) => gas,
            (Err(_), _, Action::Cancel { .. }) => chain::evm::gas::PLAIN_TRANSFER_GAS,
            (Err(_), Some(before), Action::Pay(_)) => before.gas_limit,
            (Err(error), None, Action::Pay(_)) => return Err(unpriced(&error)),
        };
        let market = fee.as_ref().ok().map(|fee| Price::Gas { gas_limit, fee: *fee });
        let price = match before {
            Some(before) => {
                let raised = self.chain.edge.bump(&Fee { gas_limit, ..before }.price(), market.as_ref());
                raised.ok_or_else(|| Event::TryFailed { error: "the fee is at its cap".to_owned() })?
            }
            None => match (market, fee) {
                (Some(market), _) => market,
                (None, Err(error)) => return Err(unpriced(&error)),
                (None, Ok(_)) => return Err(Event::Blocked { reason: "no price".to_owned() }),
            },
        };
        let native = match action {
            Action::Pay(_) => item.job.native_amount(),
            Action::Cancel { .. } => RawAmount::ZERO,
        };
        self.within_caps(&price, native)
    }

    fn within_caps(&self, price: &Price, native: RawAmount) -> Result<(Fee, RawAmount), Event> {
        let (max_cost, cap) = (price.max_cost(), self.chain.settings.max_fee);
        if max_cost > cap {
            let reason = format!("the fee may reach {max_cost}, the cap for one transaction is {cap}");
            return Err(Event::Blocked { reason });
        }
        let fee = Fee::of(price).ok_or_else(|| Event::Blocked { reason: "no price per gas".to_owned() })?;
        let cost = native.checked_add(max_cost);
        let cost = cost.ok_or_else(|| Event::Refused { reason: "amount and fee are out of range".to_owned() })?;
        Ok((fee, cost))
    }

    /// What the chain says of these wallets; a wallet it says nothing about is missing and its error named.
    pub async fn look_at(&self, wallets: Vec<Address>) -> BTreeMap<String, Result<WalletView, String>> {
        let views = wallets.into_iter().map(|address| async move {
            let view = view(&self.chain.edge, address).await;
            (address.to_string(), view.map_err(|error| away(&error)))
        });
        futures::future::join_all(views).await.into_iter().collect()
    }
}

async fn view(edge: &EvmChain, address: Address) -> Result<WalletView, ChainError> {
    // The head first: whatever is read afterwards is at least as new.
    let head = edge.head().await?.number;
    let of = [BalanceOf { holder: address, asset: AssetRef::Native }];
    let (anchor, balances) = futures::join!(edge.anchor(&address), edge.balances(&of));
    let (mined, pending) = match anchor? {
        Anchor::Nonce { mined, pending } => (mined, pending),
        Anchor::Window { .. } => return Err(ChainError::NotOfThisChain { what: "nonces" }),
    };
    let balance = balances?.into_iter().next().flatten().unwrap_or(RawAmount::ZERO);
    Ok(WalletView { mined, pending, balance, head })
}

/// The one place where a failed quote becomes a job's fate.
fn unpriced(error: &QuoteError) -> Event {
    match error {
        QuoteError::AboveCap(above) => Event::Blocked { reason: above.to_string() },
        QuoteError::InsufficientFunds { .. } => {
            Event::Blocked { reason: "the wallet cannot pay amount and fee at the moment".to_owned() }
        }
        QuoteError::Chain(error) => Event::Blocked { reason: away(error) },
        QuoteError::GasAboveCap { .. } | QuoteError::WouldRevert { .. } => {
            Event::TryFailed { error: error.to_string() }
        }
    }
}

/// Nodes that do not answer say nothing about the job. The particulars are for the log, not for the request.
pub fn away(error: &ChainError) -> String {
    tracing::debug!(error = %error, "a chain does not answer");
    match error {
        ChainError::NoNode { chain, .. } => format!("no node of {chain} answers"),
        ChainError::ForeignAddress { .. } | ChainError::NotOfThisChain { .. } => error.to_string(),
    }
}
