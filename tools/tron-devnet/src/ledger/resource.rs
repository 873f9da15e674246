//! Bandwidth and energy: what is left of them, and what is paid if nothing is left. Used resources recover evenly over a day.

use super::{Account, Prices};

const DAY_MS: i128 = 86_400_000;

/// Use of one resource, recovering over a day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    used: i64,
    at_ms: i64,
}

impl Meter {
    /// What is still used up at `now_ms`.
    pub fn used(&self, now_ms: i64) -> i64 {
        let elapsed_ms = i128::from(now_ms.saturating_sub(self.at_ms)).clamp(0, DAY_MS);
        // Smaller than `used`, so it fits.
        (i128::from(self.used) * (DAY_MS - elapsed_ms) / DAY_MS) as i64
    }

    pub fn spend(&mut self, amount: i64, now_ms: i64) {
        *self = Self { used: self.used(now_ms).saturating_add(amount), at_ms: now_ms };
    }
}

/// How the bandwidth of a transaction was paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandwidthCharge {
    pub usage: i64,
    pub fee_sun: i64,
}

/// How the energy of a call was paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnergyCharge {
    pub usage: i64,
    pub fee_sun: i64,
    pub total: i64,
}

impl Account {
    pub fn bandwidth_left(&self, now_ms: i64) -> i64 {
        (self.bandwidth_limit - self.bandwidth.used(now_ms)).max(0)
    }

    pub fn energy_left(&self, now_ms: i64) -> i64 {
        (self.energy_limit - self.energy.used(now_ms)).max(0)
    }

    /// Takes a fee from the balance. `None` if the balance is too low.
    pub fn pay(&mut self, fee_sun: i64) -> Option<()> {
        self.balance_sun = self.balance_sun.checked_sub(fee_sun).filter(|left| *left >= 0)?;
        Some(())
    }

    /// Staked bandwidth first, then free bandwidth, then a price for each byte. A transaction that opens an account uses staked
    /// bandwidth or pays a flat fee.
    pub fn charge_bandwidth(
        &mut self,
        size: i64,
        opens_account: bool,
        prices: &Prices,
        now_ms: i64,
    ) -> Option<BandwidthCharge> {
        if self.bandwidth_left(now_ms) >= size {
            self.bandwidth.spend(size, now_ms);
            return Some(BandwidthCharge { usage: size, fee_sun: 0 });
        }
        if !opens_account && prices.free_bandwidth - self.free_bandwidth.used(now_ms) >= size {
            self.free_bandwidth.spend(size, now_ms);
            return Some(BandwidthCharge { usage: size, fee_sun: 0 });
        }
        let fee_sun = if opens_account {
            prices.create_account_fee_sun
        } else {
            size.saturating_mul(prices.bandwidth_fee_sun)
        };
        self.pay(fee_sun)?;
        Some(BandwidthCharge { usage: 0, fee_sun })
    }

    /// The most energy of a call: limited by resources and balance, and by its `fee_limit`.
    pub fn energy_allowance(&self, fee_limit_sun: i64, prices: &Prices, now_ms: i64) -> i64 {
        let price = prices.energy_fee_sun.max(1);
        let affordable = self.energy_left(now_ms).saturating_add(self.balance_sun.max(0) / price);
        affordable.min(fee_limit_sun / price)
    }

    /// Staked energy first, then the balance. The allowance was computed from the same account, so the balance is sufficient.
    pub fn charge_energy(&mut self, total: i64, prices: &Prices, now_ms: i64) -> EnergyCharge {
        let usage = self.energy_left(now_ms).min(total);
        let fee_sun = (total - usage).saturating_mul(prices.energy_fee_sun);
        self.energy.spend(usage, now_ms);
        self.balance_sun -= fee_sun;
        EnergyCharge { usage, fee_sun, total }
    }
}
