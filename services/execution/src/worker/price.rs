//! What an attempt will cost, and whether its wallet can pay that. Nothing is bound yet: whoever cannot go on waits without a
//! nonce.

use std::collections::BTreeMap;

use chain::{Anchor, BalanceOf, ChainEdge, ChainError, QuoteError, NonceCounts};
use payment::{Action, AssetRef, Price, Quote, Transfer};
use types::{Address, Priority, RawAmount};

use super::batch::{Bench, Ended, Item};
use crate::job::{Attempt, Event, Fee, Window};

/// A job with its price.
#[derive(Debug, Clone)]
pub(super) struct Priced {
    pub item: Item,
    pub fee: Fee,
    /// The most that leaves the wallet in the chain's own coin.
    pub cost: RawAmount,
}

/// Why a job waits is told to whoever asked for it, once: the words are the same however prices move meanwhile. The numbers
/// are for the log.
const DEAR: &str = "the fee is above the cap at the moment";

/// What the chain says of a wallet.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalletView {
    pub mined: u64,
    pub sight: NonceCounts,
    pub balance: RawAmount,
    /// A block at which no nonce that is still to be mined was used; with a window, the one that is referred to.
    pub head: u64,
    /// On chains without nonces, where the line of the wallet is ours alone.
    pub window: Option<Window>,
}

impl Bench {
    /// Prices payments, each priority in one go. What cannot be priced comes back with its reason.
    pub(super) async fn price(&self, items: Vec<Item>) -> (Vec<Priced>, Vec<Ended>) {
        let (mut priced, mut ended) = (Vec::new(), Vec::new());
        let mut by_priority: BTreeMap<Priority, Vec<(Item, Action)>> = BTreeMap::new();
        for item in items {
            match self.payable(&item) {
                Ok(action) => by_priority.entry(item.job.priority).or_default().push((item, action)),
                Err(reason) => ended.push((item, Event::Blocked { reason })),
            }
        }
        for (priority, wanted) in by_priority.into_iter().rev() {
            let actions: Vec<Action> = wanted.iter().map(|(_, action)| action.clone()).collect();
            let mut quotes = self.chain.edge.quotes(&actions, priority).await;
            self.tell_empty_wallets(&actions, &mut quotes).await;
            for ((item, _), quote) in wanted.into_iter().zip(quotes) {
                let quote = quote.map_err(|error| unpriced(&error));
                match quote.and_then(|price| self.within_caps(&price, item.job.native_amount())) {
                    Ok((fee, cost)) => priced.push(Priced { item, fee, cost }),
                    Err(event) => ended.push((item, event)),
                }
            }
        }
        (priced, ended)
    }

    /// A token transfer also reverts when the wallet no longer holds the amount. That is no fault of the payment, which waits for
    /// the money as any other does. So of those that would revert it is asked what their wallets hold.
    async fn tell_empty_wallets(&self, actions: &[Action], quotes: &mut [Result<Quote, QuoteError>]) {
        let doubtful = actions.iter().zip(quotes).filter_map(|(action, quote)| match (action, &*quote) {
            (Action::Pay(transfer), Err(QuoteError::WouldRevert { .. }))
                if transfer.asset != AssetRef::Native =>
            {
                Some((*transfer, quote))
            }
            _ => None,
        });
        let doubtful: Vec<(Transfer, &mut Result<Quote, QuoteError>)> = doubtful.collect();
        if doubtful.is_empty() {
            return;
        }
        let of: Vec<BalanceOf> = doubtful
            .iter()
            .map(|(transfer, _)| BalanceOf { holder: transfer.from, asset: transfer.asset })
            .collect();
        let balances = self.chain.edge.balances(&of).await;
        for (index, (transfer, quote)) in doubtful.into_iter().enumerate() {
            match balances.as_ref().map(|balances| balances.get(index).copied().flatten()) {
                Ok(Some(has)) if has < transfer.amount => {
                    let reason = format!("it has {has} of the token and needs {}", transfer.amount);
                    *quote = Err(QuoteError::InsufficientFunds { reason });
                }
                Ok(_) => {}
                // Nobody says why, so it is not held against the payment.
                Err(error) => *quote = Err(error.clone().into()),
            }
        }
    }

    fn payable(&self, item: &Item) -> Result<Action, String> {
        if !item.job.asset_enabled {
            return Err(format!("{} on {} is disabled", item.job.symbol, item.job.chain));
        }
        item.job.pay().ok_or_else(|| "no wallet pays it yet".to_owned())
    }

    /// The price of another attempt at a nonce already held, above that of `previous`.
    pub(super) async fn reprice(
        &self,
        item: &Item,
        action: &Action,
        previous: Option<&Attempt>,
    ) -> Result<(Fee, RawAmount), Event> {
        let market = self.chain.edge.quote(action, item.job.priority).await;
        let before = previous.and_then(|attempt| attempt.fee);
        let price = match (before, market) {
            // What every node refused is priced anew, and only while they answer: a guess would be refused again.
            (Some(before), market) if previous.is_some_and(|attempt| attempt.rejected) => {
                self.replace(&before, &market.map_err(|error| unpriced(&error))?.price)?
            }
            (Some(before), market) => {
                let gas_limit = match (market.as_ref().ok().map(|market| Fee::of(&market.price)), action) {
                    (Some(market), _) => market.gas_limit,
                    // An estimate that fails now (the payment may just have landed) is no reason to change the limit.
                    (None, Action::Pay(_) | Action::Call(_)) => before.gas_limit,
                    (None, Action::Cancel { .. }) => chain::evm::gas::PLAIN_TRANSFER_GAS,
                };
                let raised = self.chain.edge.bump(
                    &Fee { gas_limit, ..before }.price(),
                    market.as_ref().ok().map(|market| &market.price),
                );
                raised.ok_or_else(|| Event::TryFailed { error: "the fee is at its cap".to_owned() })?
            }
            (None, Ok(market)) => market,
            (None, Err(error)) => return Err(unpriced(&error)),
        };
        let native = match action {
            Action::Pay(_) => item.job.native_amount(),
            Action::Cancel { .. } | Action::Call(_) => RawAmount::ZERO,
        };
        // At a nonce that is held, "too dear" is no reason to wait for anything: the verdicts go on deciding.
        self.within_caps(&price, native).map_err(|event| match event {
            Event::Blocked { reason } => Event::TryFailed { error: reason },
            other => other,
        })
    }

    /// A price for bytes that every node refused: the market's kind of price and gas, above what was offered before, which
    /// the signer's guard demands. A gas limit that was refused is not offered again.
    fn replace(&self, before: &Fee, market: &Price) -> Result<Quote, Event> {
        let fresh = Fee::of(market);
        let gas_limit = if fresh.gas_limit == before.gas_limit {
            before.gas_limit.saturating_add(before.gas_limit / 2)
        } else {
            fresh.gas_limit
        };
        let max_priority_fee_per_gas = fresh
            .max_priority_fee_per_gas
            .map(|_| before.max_priority_fee_per_gas.unwrap_or(before.max_fee_per_gas));
        let offered = Fee { gas_limit, max_priority_fee_per_gas, ..*before }.price();
        let raised = self.chain.edge.bump(&offered, Some(market));
        raised.ok_or_else(|| Event::TryFailed { error: "the fee is at its cap".to_owned() })
    }

    fn within_caps(&self, quote: &Quote, native: RawAmount) -> Result<(Fee, RawAmount), Event> {
        let (max_cost, cap) = (quote.max_cost, self.chain.settings.max_fee);
        if max_cost > cap {
            tracing::info!(chain = %self.chain.settings.name, %max_cost, %cap, "a fee is above the cap");
            return Err(Event::Blocked { reason: DEAR.to_owned() });
        }
        let fee = Fee::of(&quote.price);
        let cost = native.checked_add(max_cost);
        let cost =
            cost.ok_or_else(|| Event::Refused { reason: "amount and fee are out of range".to_owned() })?;
        Ok((fee, cost))
    }

    /// What the chain says of these wallets; a wallet it says nothing about is missing and its error named.
    pub(super) async fn look_at(
        &self,
        wallets: Vec<Address>,
    ) -> BTreeMap<String, Result<WalletView, String>> {
        let views = wallets.into_iter().map(|address| async move {
            let view = view(&*self.chain.edge, address).await;
            (address.to_string(), view.map_err(|error| away(&error)))
        });
        futures::future::join_all(views).await.into_iter().collect()
    }
}

async fn view(edge: &dyn ChainEdge, address: Address) -> Result<WalletView, ChainError> {
    // The head first: whatever is read afterwards is at least as new.
    let head = edge.head().await?.number;
    let of = [BalanceOf { holder: address, asset: AssetRef::Native }];
    let (anchor, balances) = futures::join!(edge.anchor(&address), edge.balances(&of));
    let balance = balances?.into_iter().next().flatten().unwrap_or(RawAmount::ZERO);
    Ok(match anchor? {
        Anchor::Nonce(sight) => WalletView { mined: sight.mined, sight, balance, head, window: None },
        Anchor::Window { block: reference, window: payment::Window { expiration_ms, made_ms, .. } } => {
            WalletView {
                mined: 0,
                // No chain counts: whatever was given out in the line stays given out.
                sight: NonceCounts { mined: 0, pending: u64::MAX, agreed: Some(0) },
                balance,
                head: reference.number,
                window: Some(Window { reference, expiration_ms, made_ms }),
            }
        }
    })
}

/// The one place where a failed quote becomes a job's fate.
fn unpriced(error: &QuoteError) -> Event {
    match error {
        QuoteError::AboveCap(above) => {
            tracing::info!(needed = above.needed, cap = above.cap, "the chain's price is above the cap");
            Event::Blocked { reason: DEAR.to_owned() }
        }
        QuoteError::InsufficientFunds { reason } => {
            tracing::info!(reason, "a wallet cannot pay");
            Event::Blocked { reason: "the wallet cannot pay amount and fee at the moment".to_owned() }
        }
        QuoteError::Chain(error) => Event::Blocked { reason: away(error) },
        QuoteError::GasAboveCap { .. } | QuoteError::WouldRevert { .. } => {
            Event::TryFailed { error: error.to_string() }
        }
    }
}

/// Nodes that do not answer say nothing about the job. The particulars are for the log, not for the request.
pub(super) fn away(error: &ChainError) -> String {
    tracing::debug!(error = %error, "a chain does not answer");
    match error {
        ChainError::NoNode { chain, .. } => format!("no node of {chain} answers"),
        ChainError::ForeignAddress { .. } | ChainError::NotOfThisChain { .. } => error.to_string(),
    }
}
