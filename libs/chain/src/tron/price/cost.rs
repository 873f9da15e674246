//! What a payment costs on TRON: bandwidth, energy, and opening the receiver's account.
//!
//! Integer arithmetic in sun rounds up. What is burnt is an upper bound: free daily bandwidth is not counted, because other payments of
//! the wallet may have used it when this one is mined. Staked resources are counted, once within a batch.

use std::collections::BTreeMap;

use crate::tron::wire::WireResources;

/// The limit of the network for what one call may burn: 15,000 TRX.
pub const MAX_FEE_LIMIT_SUN: u64 = 15_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    pub bandwidth_sun: u64,
    pub energy_sun: u64,
    /// For a receiver without an account, instead of the price of the bytes.
    pub create_account_sun: u64,
    /// For a receiver without an account, in addition.
    pub activation_sun: u64,
    pub max_fee_limit_sun: u64,
}

impl Prices {
    /// `None` if the node leaves out a price that is needed.
    pub fn of(parameters: &BTreeMap<String, i64>) -> Option<Self> {
        let price = |key: &str| u64::try_from(*parameters.get(key)?).ok();
        Some(Self {
            bandwidth_sun: price("getTransactionFee")?,
            energy_sun: price("getEnergyFee").filter(|price| *price > 0)?,
            create_account_sun: price("getCreateAccountFee")?,
            activation_sun: price("getCreateNewAccountFeeInSystemContract")?,
            max_fee_limit_sun: price("getMaxFeeLimit").unwrap_or(MAX_FEE_LIMIT_SUN).min(MAX_FEE_LIMIT_SUN),
        })
    }
}

/// The unused resources that an account has staked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Staked {
    pub bandwidth: u64,
    pub energy: u64,
}

impl Staked {
    pub fn of(resources: &WireResources) -> Self {
        let left = |limit: i64, used: i64| u64::try_from(limit.saturating_sub(used)).unwrap_or(0);
        Self {
            bandwidth: left(resources.net_limit, resources.net_used),
            energy: left(resources.energy_limit, resources.energy_used),
        }
    }

    /// The price of `bytes`. They are free only if staked bandwidth covers all of them; this is how the network counts.
    pub fn bandwidth_sun(&mut self, bytes: u64, opens_account: bool, prices: &Prices) -> u64 {
        if let Some(left) = self.bandwidth.checked_sub(bytes) {
            self.bandwidth = left;
            return 0;
        }
        let flat = if opens_account { prices.create_account_sun } else { 0 };
        // The receiver may get its account before this is mined, so the more expensive of the two counts.
        bytes.saturating_mul(prices.bandwidth_sun).max(flat)
    }

    /// The price of the energy that is not staked.
    pub fn energy_sun(&mut self, energy: u64, prices: &Prices) -> u64 {
        let covered = self.energy.min(energy);
        self.energy -= covered;
        (energy - covered).saturating_mul(prices.energy_sun)
    }
}

/// Adds a margin in thousandths, rounded up, because the energy factor of a token may grow before the call is mined.
pub fn with_margin(energy: u64, permille: u32) -> u64 {
    let factor = 1000 + u128::from(permille);
    u64::try_from((u128::from(energy) * factor).div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        bandwidth_sun: 1_000,
        energy_sun: 100,
        create_account_sun: 100_000,
        activation_sun: 1_000_000,
        max_fee_limit_sun: MAX_FEE_LIMIT_SUN,
    };

    #[test]
    fn bandwidth_is_staked_whole_or_paid_whole() {
        let mut staked = Staked { bandwidth: 300, energy: 0 };
        assert_eq!(staked.bandwidth_sun(267, false, &PRICES), 0);
        assert_eq!(staked.bandwidth_sun(267, false, &PRICES), 267_000, "33 bytes left pay for nothing");
        assert_eq!(staked.bandwidth, 33);
    }

    #[test]
    fn staked_energy_is_handed_out_once() {
        let mut staked = Staked { bandwidth: 0, energy: 100_000 };
        assert_eq!(staked.energy_sun(64_285, &PRICES), 0);
        assert_eq!(staked.energy_sun(64_285, &PRICES), (64_285 - 35_715) * 100);
    }

    #[test]
    fn a_margin_is_rounded_up() {
        assert_eq!(with_margin(64_285, 200), 77_142);
        assert_eq!(with_margin(1, 1), 2);
    }

    #[test]
    fn prices_that_are_missing_are_not_zero() {
        let mut parameters: BTreeMap<String, i64> = [
            ("getTransactionFee", 1_000),
            ("getEnergyFee", 100),
            ("getCreateAccountFee", 100_000),
            ("getCreateNewAccountFeeInSystemContract", 1_000_000),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        assert_eq!(Prices::of(&parameters), Some(PRICES));
        parameters.remove("getEnergyFee");
        assert_eq!(Prices::of(&parameters), None);
    }
}
