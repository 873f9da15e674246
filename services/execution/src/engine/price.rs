//! What an attempt will cost, and whether its wallet can pay that. Nothing is bound yet: a job that cannot go on waits without a
//! nonce.

use std::collections::BTreeMap;

use chain::{Anchor, BalanceOf, ChainEdge, ChainError, NonceCounts, QuoteError};
use payment::{Action, AssetRef, BlockRef, GasFee, Price, Quote, Transfer, Window};
use types::{Address, Priority, RawAmount};

use super::context::{Ended, Item, WorkContext};
use crate::job::{Attempt, WorkEvent};

/// A price within the caps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub price: Price,
    /// The most that leaves the wallet in the chain's own coin.
    pub cost: RawAmount,
}

/// A job with what it is to do and its price.
#[derive(Debug, Clone)]
pub(super) struct Priced {
    pub item: Item,
    pub action: Action,
    pub offer: Offer,
}

/// Why a job waits is reported to the requester once, so the words stay the same however prices move. The numbers are for the
/// log.
const TOO_EXPENSIVE: &str = "the fee is above the cap at the moment";

/// What the chain says of a wallet.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalletView {
    pub mined: u64,
    pub sight: NonceCounts,
    pub balance: RawAmount,
    /// A block at which no nonce that is still to be mined was used; with a window, the one that is referred to.
    pub head: u64,
    /// On chains without nonces, where the wallet's lane is known to nobody else.
    pub window: Option<(BlockRef, Window)>,
}

impl WorkContext {
    /// Prices payments, all of one priority in one call. What cannot be priced comes back with its reason.
    pub(super) async fn price(&self, items: Vec<Item>) -> (Vec<Priced>, Vec<Ended>) {
        let (mut priced, mut ended) = (Vec::new(), Vec::new());
        let mut by_priority: BTreeMap<Priority, (Vec<Item>, Vec<Action>)> = BTreeMap::new();
        for item in items {
            match payable(&item) {
                Ok(action) => {
                    let (items, actions) = by_priority.entry(item.job.priority).or_default();
                    items.push(item);
                    actions.push(action);
                }
                Err(reason) => ended.push((item, WorkEvent::Blocked { reason })),
            }
        }
        for (priority, (items, actions)) in by_priority.into_iter().rev() {
            let mut quotes = self.chain.edge.quotes(&actions, priority).await;
            self.find_empty_wallets(&actions, &mut quotes).await;
            for ((item, action), quote) in items.into_iter().zip(actions).zip(quotes) {
                let quote = quote.map_err(|error| unpriced(&error));
                match quote.and_then(|quote| self.within_caps(&quote, &action)) {
                    Ok(offer) => priced.push(Priced { item, action, offer }),
                    Err(event) => ended.push((item, event)),
                }
            }
        }
        (priced, ended)
    }

    /// A token transfer also reverts when the wallet no longer holds the amount. That is no fault of the payment, which waits for
    /// the money as any other does. So the balances are read of the wallets whose transfers would revert.
    async fn find_empty_wallets(&self, actions: &[Action], quotes: &mut [Result<Quote, QuoteError>]) {
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
                // The reason is unknown, so it is not counted against the payment.
                Err(error) => *quote = Err(error.clone().into()),
            }
        }
    }

    /// The price of another attempt at a nonce already held, above that of `previous`.
    pub(super) async fn reprice(
        &self,
        item: &Item,
        action: &Action,
        previous: Option<&Attempt>,
    ) -> Result<Offer, WorkEvent> {
        let market = self.chain.edge.quote(action, item.job.priority).await;
        let before = previous.and_then(|attempt| attempt.price);
        let quote = match (before, market) {
            // What every node refused is priced anew, and only while they answer: a guess would be refused again.
            (Some(before), market) if previous.is_some_and(|attempt| attempt.rejected) => {
                let market = market.map_err(|error| unpriced(&error))?.price;
                self.chain.edge.bump(&replaced(&before, &market), Some(&market)).ok_or_else(at_cap)?
            }
            (Some(before), market) => {
                let market = market.ok().map(|quote| quote.price);
                let offered = with_gas_of(&before, market.as_ref(), action);
                self.chain.edge.bump(&offered, market.as_ref()).ok_or_else(at_cap)?
            }
            (None, Ok(market)) => market,
            (None, Err(error)) => return Err(unpriced(&error)),
        };
        // At a nonce that is held, a fee above the cap is no reason to wait: the verdicts go on deciding.
        self.within_caps(&quote, action).map_err(|event| match event {
            WorkEvent::Blocked { reason } => WorkEvent::TryFailed { error: reason },
            other => other,
        })
    }

    fn within_caps(&self, quote: &Quote, action: &Action) -> Result<Offer, WorkEvent> {
        let (max_cost, cap) = (quote.max_cost, self.chain.settings.max_fee);
        if max_cost > cap {
            tracing::info!(chain = %self.chain.settings.name, %max_cost, %cap, "a fee is above the cap");
            return Err(WorkEvent::Blocked { reason: TOO_EXPENSIVE.to_owned() });
        }
        let cost = native_amount(action).checked_add(max_cost);
        let cost =
            cost.ok_or_else(|| WorkEvent::Refused { reason: "amount and fee are out of range".to_owned() })?;
        Ok(Offer { price: quote.price, cost })
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

fn payable(item: &Item) -> Result<Action, String> {
    if !item.job.asset_enabled {
        return Err(format!("{} on {} is disabled", item.job.symbol, item.job.chain));
    }
    item.job.action().ok_or_else(|| "no wallet pays it yet".to_owned())
}

/// What leaves the wallet in the chain's own coin, besides the fee.
fn native_amount(action: &Action) -> RawAmount {
    match action {
        Action::Pay(Transfer { asset: AssetRef::Native, amount, .. }) => *amount,
        Action::Pay(Transfer { asset: AssetRef::Token(_), .. }) | Action::Cancel { .. } | Action::Call(_) => {
            RawAmount::ZERO
        }
    }
}

fn at_cap() -> WorkEvent {
    WorkEvent::TryFailed { error: "the fee is at its cap".to_owned() }
}

/// The price that was offered before, with the gas that the action needs now.
fn with_gas_of(before: &Price, market: Option<&Price>, action: &Action) -> Price {
    match (before, market, action) {
        (Price::Gas { fee, .. }, Some(Price::Gas { limit, .. }), _) => {
            Price::Gas { limit: *limit, fee: *fee }
        }
        (Price::Gas { fee, .. }, None, Action::Cancel { .. }) => {
            Price::Gas { limit: chain::evm::gas::PLAIN_TRANSFER_GAS, fee: *fee }
        }
        // An estimate that fails now (the payment may just have landed) is no reason to change the limit.
        (Price::Gas { .. }, None, Action::Pay(_) | Action::Call(_))
        | (Price::Gas { .. }, Some(Price::FeeLimit { .. }), _)
        | (Price::FeeLimit { .. }, _, _) => *before,
    }
}

/// A price for bytes that every node refused: the market's kind of price and gas, at what was offered before, above which the
/// signer's guard demands the next. A gas limit that was refused is not offered again.
fn replaced(before: &Price, market: &Price) -> Price {
    let (Price::Gas { limit: refused, fee: before }, Price::Gas { limit, fee: market }) = (before, market)
    else {
        return *before;
    };
    let limit = if limit == refused { refused.saturating_add(refused / 2) } else { *limit };
    let fee = match market {
        GasFee::Dynamic { .. } => GasFee::Dynamic { max_fee: before.ceiling(), max_priority: before.tip() },
        GasFee::Legacy { .. } => GasFee::Legacy { gas_price: before.ceiling() },
    };
    Price::Gas { limit, fee }
}

async fn view(edge: &dyn ChainEdge, address: Address) -> Result<WalletView, ChainError> {
    // The head first: whatever is read afterwards is at least as new.
    let head = edge.head().await?.number;
    let of = [BalanceOf { holder: address, asset: AssetRef::Native }];
    let (anchor, balances) = futures::join!(edge.anchor(&address), edge.balances(&of));
    let balance = balances?.into_iter().next().flatten().unwrap_or(RawAmount::ZERO);
    Ok(match anchor? {
        Anchor::Nonce(sight) => WalletView { mined: sight.mined, sight, balance, head, window: None },
        Anchor::Window { block, window } => WalletView {
            mined: 0,
            // The chain does not count: whatever was given out in the lane stays given out.
            sight: NonceCounts { mined: 0, pending: u64::MAX, agreed: Some(0) },
            balance,
            head: block.number,
            window: Some((block, window)),
        },
    })
}

/// The one place where a failed quote becomes a job's fate.
fn unpriced(error: &QuoteError) -> WorkEvent {
    match error {
        QuoteError::AboveCap(above) => {
            tracing::info!(needed = above.needed, cap = above.cap, "the chain's price is above the cap");
            WorkEvent::Blocked { reason: TOO_EXPENSIVE.to_owned() }
        }
        QuoteError::InsufficientFunds { reason } => {
            tracing::info!(reason, "a wallet cannot pay");
            WorkEvent::Blocked { reason: "the wallet cannot pay amount and fee at the moment".to_owned() }
        }
        QuoteError::Chain(error) => WorkEvent::Blocked { reason: away(error) },
        QuoteError::GasAboveCap { .. } | QuoteError::WouldRevert { .. } => {
            WorkEvent::TryFailed { error: error.to_string() }
        }
    }
}

/// Nodes that do not answer say nothing about the job. The details are for the log, not for the request.
pub(super) fn away(error: &ChainError) -> String {
    tracing::debug!(error = %error, "a chain does not answer");
    match error {
        ChainError::NoNode { chain, .. } => format!("no node of {chain} answers"),
        ChainError::ForeignAddress { .. } | ChainError::NotOfThisChain { .. } => error.to_string(),
    }
}
