//! Fees: EIP-1559 and legacy prices, their floors and caps, and the step a replacement must take.
//!
//! Pure integer arithmetic that rounds up, because a replacement one unit short is refused. Prices are in the chain's
//! smallest unit per gas.
//!
//! Invariants: no price above the policy's cap is ever returned; a bump raises every part of the price by at least the
//! policy's step and by at least one unit.

use payment::GasFee;
use serde::{Deserialize, Serialize};
use types::Priority;

use super::wire::WireFeeHistory;
use crate::error::{AboveCap, ConfigError};

/// The smallest replacement step, in thousandths: 12.5 %. Nodes ask for 10 %; some round against the sender.
pub const MIN_BUMP_PERMILLE: u32 = 125;

/// How transactions of a chain are priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeeKind {
    /// EIP-1559.
    Dynamic,
    /// One gas price.
    Legacy,
}

/// Raises every part by `permille` thousandths, at least [`MIN_BUMP_PERMILLE`], rounded up. `None` when that is above the
/// cap: nodes would refuse a smaller step, so there is nothing in between.
pub fn raise(fee: &GasFee, permille: u32, cap: u128) -> Option<GasFee> {
    let raised = match fee {
        GasFee::Dynamic { max_fee, max_priority } => {
            let max_priority = step_up(*max_priority, permille)?;
            GasFee::Dynamic { max_fee: step_up(*max_fee, permille)?.max(max_priority), max_priority }
        }
        GasFee::Legacy { gas_price } => GasFee::Legacy { gas_price: step_up(*gas_price, permille)? },
    };
    (raised.ceiling() <= cap).then_some(raised)
}

/// The larger of each part; `fee` itself when the market's is of another kind.
fn at_least(fee: &GasFee, market: &GasFee) -> GasFee {
    match (fee, market) {
        (
            GasFee::Dynamic { max_fee, max_priority },
            GasFee::Dynamic { max_fee: market_fee, max_priority: market_priority },
        ) => GasFee::Dynamic {
            max_fee: *max_fee.max(market_fee),
            max_priority: *max_priority.max(market_priority),
        },
        (GasFee::Legacy { gas_price }, GasFee::Legacy { gas_price: market }) => {
            GasFee::Legacy { gas_price: *gas_price.max(market) }
        }
        (GasFee::Dynamic { .. }, GasFee::Legacy { .. }) | (GasFee::Legacy { .. }, GasFee::Dynamic { .. }) => {
            *fee
        }
    }
}

fn step_up(value: u128, permille: u32) -> Option<u128> {
    let factor = 1000 + u128::from(permille.max(MIN_BUMP_PERMILLE));
    let raised = value.checked_mul(factor)?.div_ceil(1000);
    // A zero tip stays zero in per cent, and nodes want strictly more.
    Some(raised.max(value.checked_add(1)?))
}

/// How a chain's prices are chosen. All of it is data of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeePolicy {
    pub kind: FeeKind,
    /// Nothing is ever paid above this per gas.
    pub max_fee_cap: u128,
    /// The tip never exceeds this in a first quote; bumps may, up to `max_fee_cap`.
    pub max_priority_cap: u128,
    /// The least a node takes per gas. On chains without a base fee (BSC) this is the tip.
    pub min_gas_price: u128,
    /// How many recent blocks the tip is taken from.
    pub history_blocks: u64,
    /// Percentile of tips in those blocks, for priorities low, normal, high, urgent.
    pub percentiles: [u8; 4],
    /// Room for the base fee to grow: 2000 allows it to double.
    pub base_fee_permille: u32,
    /// The replacement step in thousandths; at least [`MIN_BUMP_PERMILLE`].
    pub bump_permille: u32,
}

impl Default for FeePolicy {
    /// EIP-1559 with room for the base fee to double, no floor, and a cap of 500 gwei.
    fn default() -> Self {
        Self {
            kind: FeeKind::Dynamic,
            max_fee_cap: 500_000_000_000,
            max_priority_cap: 100_000_000_000,
            min_gas_price: 0,
            history_blocks: 20,
            percentiles: [25, 50, 75, 90],
            base_fee_permille: 2000,
            bump_permille: MIN_BUMP_PERMILLE,
        }
    }
}

impl FeePolicy {
    pub fn check(&self) -> Result<(), ConfigError> {
        let problem = |field, problem: &str| Err(ConfigError::Field { field, problem: problem.to_owned() });
        if self.max_fee_cap == 0 {
            return problem("max_fee_cap", "must be above zero");
        }
        if self.min_gas_price > self.max_fee_cap {
            return problem("min_gas_price", "must not exceed max_fee_cap");
        }
        if self.percentiles.iter().any(|percentile| *percentile > 100) {
            return problem("percentiles", "must be 0 to 100");
        }
        if !(1..=1024).contains(&self.history_blocks) {
            return problem("history_blocks", "must be 1 to 1024");
        }
        if self.base_fee_permille < 1000 {
            return problem("base_fee_permille", "must be at least 1000");
        }
        if !(MIN_BUMP_PERMILLE..=10_000).contains(&self.bump_permille) {
            return problem("bump_permille", "must be 125 to 10000");
        }
        Ok(())
    }

    pub fn percentile(&self, priority: Priority) -> u8 {
        let [low, normal, high, urgent] = self.percentiles;
        match priority {
            Priority::Low => low,
            Priority::Normal => normal,
            Priority::High => high,
            Priority::Urgent => urgent,
        }
    }

    /// A dynamic price from the base fee of the next block and recent tips.
    pub fn dynamic(&self, history: &WireFeeHistory) -> Result<GasFee, AboveCap> {
        let base: u128 = history.base_fee_per_gas.last().map_or(0, |base| base.to());
        // Together with the base fee the floor must be met; on BSC the base fee is zero.
        let floor = self.min_gas_price.saturating_sub(base);
        let needed = base.saturating_add(floor);
        if needed > self.max_fee_cap {
            return Err(AboveCap { needed, cap: self.max_fee_cap });
        }
        let max_priority = median_tip(history)
            .min(self.max_priority_cap)
            .max(floor)
            // What the base fee leaves under the cap; never below the floor, by the check above.
            .min(self.max_fee_cap - base);
        let room = base.saturating_mul(u128::from(self.base_fee_permille)).div_ceil(1000);
        let max_fee = room.saturating_add(max_priority).min(self.max_fee_cap);
        Ok(GasFee::Dynamic { max_fee, max_priority })
    }

    /// A legacy price from what the node suggests.
    pub fn legacy(&self, suggested: u128) -> Result<GasFee, AboveCap> {
        let gas_price = suggested.max(self.min_gas_price);
        if gas_price > self.max_fee_cap {
            return Err(AboveCap { needed: gas_price, cap: self.max_fee_cap });
        }
        Ok(GasFee::Legacy { gas_price })
    }

    /// The price of the next attempt at the same nonce: one step up, or the market's price when that is higher still.
    pub fn bump(&self, previous: &GasFee, market: Option<&GasFee>) -> Option<GasFee> {
        let raised = raise(previous, self.bump_permille, self.max_fee_cap)?;
        let priced = market.map_or(raised, |market| at_least(&raised, market));
        // A market above the cap does not take the step away.
        Some(if priced.ceiling() <= self.max_fee_cap { priced } else { raised })
    }
}

/// The median of recent tips. Blocks without transactions report zero and say nothing about the market.
fn median_tip(history: &WireFeeHistory) -> u128 {
    let rewards = history.reward.as_deref().unwrap_or_default();
    let mut tips: Vec<u128> = rewards
        .iter()
        .filter_map(|block| block.first())
        .map(|tip| tip.to::<u128>())
        .filter(|tip| *tip > 0)
        .collect();
    tips.sort_unstable();
    tips.get(tips.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
#[path = "fees_tests.rs"]
mod tests;
