//! Prices and values: integers with a fixed scale of 36 digits after the point.
//!
//! Owns the arithmetic between prices, values and raw amounts. Never touches floating point. Every rounding is named by the
//! caller or said here, and a product is 512 bits wide before it is divided, so nothing wraps; what does not fit in the end is `None`.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::aliases::U512;
use alloy_primitives::ruint::UintTryFrom as _;
use alloy_primitives::{U256, uint};
use serde::{Serialize, Serializer};
use types::{Amount, AmountError, Decimals, RawAmount, format_amount};

/// Digits after the point.
pub const SCALE: u8 = 36;
const ONE: U256 = uint!(1_000_000_000_000_000_000_000_000_000_000_000_000_U256);
/// Parts of ten thousand in a whole.
const WHOLE_BP: u64 = 10_000;

/// A price of one unit, or a value: never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Decimal(U256);

/// Which way an amount that is no whole number of raw units goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

impl Decimal {
    pub const ZERO: Self = Self(U256::ZERO);
    pub const ONE: Self = Self(ONE);

    /// Reads what a market says. Digits past the 36th are cut: no amount of anything makes them worth a cent.
    ///
    /// # Errors
    /// When the text is no decimal number, or too large.
    pub fn cut(text: &str) -> Result<Self, AmountError> {
        let Some((whole, fraction)) = text.split_once('.') else { return text.parse() };
        // What is cut must be digits all the same; a garbled text is not made good by shortening it.
        let (kept, rest) = fraction.split_at_checked(usize::from(SCALE)).unwrap_or((fraction, ""));
        if let Some((at, character)) = rest.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
            return Err(AmountError::NotADigit { character, at: whole.len() + 1 + kept.len() + at });
        }
        format!("{whole}.{kept}").parse()
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// What an amount is worth at this price, rounded down.
    #[must_use]
    pub fn value_of(self, amount: RawAmount, decimals: Decimals) -> Option<Self> {
        ratio(amount.as_u256(), self.0, power(decimals), Round::Down).map(Self)
    }

    /// How much is worth `value` at this price; nothing at a price of zero.
    #[must_use]
    pub fn amount_worth(self, value: Self, decimals: Decimals, round: Round) -> Option<RawAmount> {
        ratio(value.0, power(decimals), self.0, round).map(RawAmount::from_u256)
    }

    /// This number of whole units as raw units.
    #[must_use]
    pub fn to_raw(self, decimals: Decimals, round: Round) -> Option<RawAmount> {
        Self::ONE.amount_worth(self, decimals, round)
    }

    /// How far two prices are apart, in parts of ten thousand of the smaller one, rounded up. Nothing when one is zero.
    #[must_use]
    pub fn distance_bp(self, other: Self) -> Option<u64> {
        let (low, high) = (self.0.min(other.0), self.0.max(other.0));
        let parts = ratio(high - low, U256::from(WHOLE_BP), low, Round::Up)?;
        Some(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// Half-way between two numbers.
    #[must_use]
    pub fn midpoint(self, other: Self) -> Self {
        let (low, high) = (self.0.min(other.0), self.0.max(other.0));
        Self(low + (high - low) / U256::from(2u8))
    }

    /// For people: at most `places` digits after the point, the rest cut.
    #[must_use]
    pub fn short(self, places: u8) -> String {
        let step = U256::from(10u8).pow(U256::from(SCALE.saturating_sub(places)));
        Self(self.0 - self.0 % step).to_string()
    }
}

fn power(decimals: Decimals) -> U256 {
    // At most 10^77, which fits.
    U256::from(10u8).pow(U256::from(decimals.get()))
}

/// `a x b / by`, nothing when it does not fit or `by` is zero.
fn ratio(a: U256, b: U256, by: U256, round: Round) -> Option<U256> {
    if by.is_zero() {
        return None;
    }
    let (product, by): (U512, U512) = (a.widening_mul(b), U512::from(by));
    let quotient = match round {
        Round::Up => product.div_ceil(by),
        Round::Down => product / by,
    };
    U256::uint_try_from(quotient).ok()
}

fn scale() -> Decimals {
    Decimals::new(SCALE).unwrap_or(Decimals::MAX)
}

impl FromStr for Decimal {
    type Err = AmountError;

    /// Exact: more than 36 digits after the point are refused.
    fn from_str(text: &str) -> Result<Self, AmountError> {
        Amount::parse(text, scale()).map(|raw| Self(raw.as_u256()))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_amount(RawAmount::from_u256(self.0), scale()))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({self})")
    }
}

/// As text: a JSON number would be read as floating point by most.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    fn places(n: u8) -> Decimals {
        Decimals::new(n).unwrap()
    }

    #[test]
    fn a_price_is_exact_and_a_markets_surplus_digits_are_cut() {
        assert_eq!(decimal("598.1200").to_string(), "598.12");
        let long = "0.000000000078358821118124686299470878035953686996828667070205991";
        assert_eq!(Decimal::cut(long).unwrap().to_string(), "0.000000000078358821118124686299470878");
        assert!(long.parse::<Decimal>().is_err());
        assert_eq!(decimal("598.129999").short(2), "598.12");
        for bad in ["", "-1", "1e5", "NaN", "1.", ".5", "0x10", "1,5", " 1", &format!("{long}x")] {
            assert!(Decimal::cut(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_and_amounts_convert_with_the_rounding_asked_for() {
        let price = decimal("3");
        let one = decimal("1");
        assert_eq!(price.amount_worth(one, places(2), Round::Down), Some(RawAmount::from(33u64)));
        assert_eq!(price.amount_worth(one, places(2), Round::Up), Some(RawAmount::from(34u64)));
        assert_eq!(price.value_of(RawAmount::from(50u64), places(2)), Some(decimal("1.5")));
        assert_eq!(Decimal::ZERO.amount_worth(one, places(2), Round::Up), None);
        assert_eq!(decimal("2").value_of(RawAmount::MAX, places(0)), None);
        assert_eq!(decimal("1.005").to_raw(places(2), Round::Up), Some(RawAmount::from(101u64)));
    }

    #[test]
    fn distance_is_relative_to_the_smaller_price() {
        assert_eq!(decimal("100").distance_bp(decimal("101")), Some(100));
        assert_eq!(decimal("101").distance_bp(decimal("100")), Some(100));
        assert_eq!(decimal("5").distance_bp(decimal("5")), Some(0));
        assert_eq!(decimal("5").distance_bp(Decimal::ZERO), None);
    }

    proptest! {
        #[test]
        fn an_amount_worth_a_value_brackets_it(price in 1u128.., value: u128, d in 0u8..=30) {
            let (price, value) = (Decimal(U256::from(price)), Decimal(U256::from(value)));
            let decimals = places(d);
            if let (Some(down), Some(up)) =
                (price.amount_worth(value, decimals, Round::Down), price.amount_worth(value, decimals, Round::Up))
            {
                prop_assert!(down <= up && up.checked_sub(down).unwrap() <= RawAmount::from(1u64));
                prop_assert!(price.value_of(down, decimals).unwrap() <= value);
            }
        }

        #[test]
        fn text_survives(units: u128) {
            let value = Decimal(U256::from(units));
            prop_assert_eq!(value.to_string().parse::<Decimal>().unwrap(), value);
        }
    }
}
