//! Deciding: which wallets are out of bounds, and the fewest transfers that bring them back.

use std::cmp::Reverse;

use types::{Decimals, RawAmount, WalletId, format_amount};

use super::{Bounds, FloatBounds, Scores, Unit};
use crate::book::{Book, Holding, Role, Wallet};
use crate::decimal::{Decimal, Round};
use crate::strategy::{Decision, End, Hold, Kind, Move, StrategyError};

/// Bounds in raw units.
#[derive(Debug, Clone, Copy)]
struct Limits {
    floor: RawAmount,
    target: RawAmount,
    ceiling: RawAmount,
}

/// A wallet out of bounds, and by how much it is off the target.
#[derive(Debug, Clone, Copy)]
struct Off {
    wallet: WalletId,
    amount: RawAmount,
}

/// Where a wallet's float stands.
enum Standing {
    Within,
    Low(RawAmount),
    High(RawAmount),
}

/// One pair of chain and asset, being decided.
struct Case<'a> {
    bounds: &'a Bounds,
    decimals: Decimals,
    price: Option<Decimal>,
    decision: &'a mut Decision,
}

pub(super) fn decide(
    strategy: &FloatBounds,
    scores: &Scores,
    book: &Book,
) -> Result<Decision, StrategyError> {
    let mut decision = Decision::default();
    for bounds in &strategy.bounds {
        let (chain, asset) = (&bounds.chain, &bounds.asset);
        let known = book
            .asset(chain, asset)
            .ok_or_else(|| StrategyError::UnknownAsset { chain: chain.clone(), asset: asset.clone() })?;
        let price = scores.trusted(asset);
        let mut case = Case { bounds, decimals: known.decimals, price, decision: &mut decision };
        if !known.enabled {
            case.hold(None, "the asset takes no new work".to_owned());
            continue;
        }
        case.decide(book)?;
    }
    Ok(decision)
}

impl Case<'_> {
    fn hold(&mut self, wallet: Option<WalletId>, reason: String) {
        let (chain, asset) = (self.bounds.chain.clone(), self.bounds.asset.clone());
        self.decision.holds.push(Hold { chain, asset, wallet, reason });
    }

    fn overflow(&self) -> StrategyError {
        StrategyError::Overflow { chain: self.bounds.chain.clone(), asset: self.bounds.asset.clone() }
    }

    fn decide(&mut self, book: &Book) -> Result<(), StrategyError> {
        let Some(limits) = self.limits()? else { return Ok(()) };
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for wallet in book.active(&self.bounds.chain, Role::Hot) {
            let Some(holding) = self.usable(wallet) else { continue };
            match standing(&holding, limits).ok_or_else(|| self.overflow())? {
                Standing::Within => {}
                Standing::Low(amount) => low.push(Off { wallet: wallet.id, amount }),
                Standing::High(amount) if amount.is_zero() => {
                    self.hold(Some(wallet.id), "above the ceiling by what has not arrived yet".to_owned());
                }
                Standing::High(amount) => high.push(Off { wallet: wallet.id, amount }),
            }
        }
        // The largest first makes the fewest transfers; the id decides among equals, so that the same book gives the same moves.
        for side in [&mut low, &mut high] {
            side.sort_by_key(|off| (Reverse(off.amount), off.wallet));
        }
        let (low, high) = self.rebalance(low, high);
        self.sweep(&high, book);
        for off in low {
            self.propose(Kind::Refill, End::Outside, End::Wallet(off.wallet), off.amount);
        }
        Ok(())
    }

    /// The bounds in raw units; nothing, and said so, when they cannot be told at present.
    fn limits(&mut self) -> Result<Option<Limits>, StrategyError> {
        let price = match (self.bounds.unit, self.price) {
            (Unit::Asset, _) => Decimal::ONE,
            (Unit::Quote, Some(price)) => price,
            (Unit::Quote, None) => {
                self.hold(None, "no price is trusted, and the bounds are told in the quote".to_owned());
                return Ok(None);
            }
        };
        let raw = |value: Decimal, round| price.amount_worth(value, self.decimals, round);
        let bounds = self.bounds;
        let limits = (|| {
            // Towards the inside, so that what is within these is within those that were asked for.
            let (floor, ceiling) = (raw(bounds.floor, Round::Up)?, raw(bounds.ceiling, Round::Down)?);
            let target = raw(bounds.target, Round::Down)?.max(floor).min(ceiling);
            Some(Limits { floor, target, ceiling })
        })();
        let limits = limits.ok_or_else(|| self.overflow())?;
        if limits.floor > limits.ceiling {
            self.hold(None, "no whole amount lies between floor and ceiling".to_owned());
            return Ok(None);
        }
        Ok(Some(limits))
    }

    fn usable(&mut self, wallet: &Wallet) -> Option<Holding> {
        match wallet.holdings.get(&self.bounds.asset) {
            None => {
                self.hold(Some(wallet.id), "its balance has not been read yet".to_owned());
                None
            }
            Some(holding) if holding.stale => {
                self.hold(Some(wallet.id), "its balance has not been read for too long".to_owned());
                None
            }
            Some(holding) => Some(*holding),
        }
    }

    /// Gives what some have too much to those that have too little; returns what is left of both.
    fn rebalance(&mut self, low: Vec<Off>, high: Vec<Off>) -> (Vec<Off>, Vec<Off>) {
        let (mut lacking, mut spare) = (low.into_iter().peekable(), high.into_iter().peekable());
        while let (Some(to), Some(from)) = (lacking.peek_mut(), spare.peek_mut()) {
            let amount = to.amount.min(from.amount);
            let (giver, taker) = (End::Wallet(from.wallet), End::Wallet(to.wallet));
            to.amount = to.amount.saturating_sub(amount);
            from.amount = from.amount.saturating_sub(amount);
            let (taken, given) = (to.amount.is_zero(), from.amount.is_zero());
            self.propose(Kind::Rebalance, giver, taker, amount);
            // At least one of the two is done, so this ends.
            if taken {
                lacking.next();
            }
            if given {
                spare.next();
            }
        }
        (lacking.collect(), spare.collect())
    }

    fn sweep(&mut self, high: &[Off], book: &Book) {
        let cold = book.active(&self.bounds.chain, Role::Cold).next().map(|wallet| wallet.id);
        for off in high {
            match cold {
                Some(cold) => {
                    let (from, to) = (End::Wallet(off.wallet), End::Wallet(cold));
                    self.propose(Kind::Sweep, from, to, off.amount);
                }
                None => {
                    let much = format_amount(off.amount, self.decimals);
                    let reason = format!("{much} above its target, and the chain has no active cold wallet");
                    self.hold(Some(off.wallet), reason);
                }
            }
        }
    }

    fn propose(&mut self, kind: Kind, from: End, to: End, amount: RawAmount) {
        let reason = match kind {
            Kind::Refill => "below the floor, and no other wallet has it to spare",
            Kind::Sweep => "above the ceiling",
            Kind::Rebalance => "one above the ceiling, one below the floor",
        };
        let value = self.price.and_then(|price| price.value_of(amount, self.decimals));
        self.decision.moves.push(Move {
            kind,
            chain: self.bounds.chain.clone(),
            asset: self.bounds.asset.clone(),
            from,
            to,
            amount,
            decimals: self.decimals,
            value,
            reason: reason.to_owned(),
        });
    }
}

/// Nothing when amounts leave their range.
fn standing(holding: &Holding, limits: Limits) -> Option<Standing> {
    let have = holding.balance.checked_add(holding.incoming)?;
    // Compared by sums: the float itself is negative when more is spoken for than is there.
    if have < holding.reserved.checked_add(limits.floor)? {
        let want = holding.reserved.checked_add(limits.target)?;
        return Some(Standing::Low(want.saturating_sub(have)));
    }
    if have > holding.reserved.checked_add(limits.ceiling)? {
        let spare = have.checked_sub(holding.reserved)?.checked_sub(limits.target)?;
        return Some(Standing::High(spare.min(holding.movable())));
    }
    Some(Standing::Within)
}
