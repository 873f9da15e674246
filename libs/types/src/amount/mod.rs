//! Amounts of money: raw integers in an asset's smallest unit, and the exact conversion to and from the decimal
//! text people write.
//!
//! Never touches floating point, never rounds, never wraps: a text that does not name exactly one raw integer below
//! 2^256 is refused, and arithmetic that would leave that range answers `None`.
//!
//! The raw form is canonical decimal: digits only, no sign, no leading zeros. The human form is `whole` or
//! `whole.fraction`, with digits on both sides of the point; trailing zeros in the fraction are accepted as long as
//! the asset has that many decimals, since "12.50" is how people write money.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::U256;

use crate::text::serde_as_text;

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("amount is empty")]
    Empty,
    #[error("amount has a sign; write digits only")]
    Signed,
    #[error("amount has {character:?} at position {at}, which is not a digit")]
    NotADigit { character: char, at: usize },
    #[error("amount has leading zeros")]
    LeadingZeros,
    #[error("amount has no digits before the decimal point")]
    NoWholePart,
    #[error("amount has no digits after the decimal point")]
    NoFraction,
    #[error("amount has {digits} digits after the decimal point, the asset has {decimals} decimals")]
    TooPrecise { digits: usize, decimals: u8 },
    #[error("amount is larger than 2^256 - 1 raw units")]
    Overflow,
    #[error("{found} decimals are more than the {max} a 256-bit amount can carry", max = Decimals::MAX.0)]
    TooManyDecimals { found: u32 },
}

/// An amount in the asset's smallest unit (wei, sun, a token's raw unit).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawAmount(U256);

impl RawAmount {
    pub const ZERO: Self = Self(U256::ZERO);
    pub const MAX: Self = Self(U256::MAX);

    pub const fn from_u256(value: U256) -> Self {
        Self(value)
    }

    pub const fn as_u256(&self) -> U256 {
        self.0
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub fn checked_mul(self, factor: u64) -> Option<Self> {
        self.0.checked_mul(U256::from(factor)).map(Self)
    }

    /// The difference, or zero where `other` is larger: for "how much is missing", never for a balance.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum of all, or `None` if it leaves the range.
    pub fn checked_sum(amounts: impl IntoIterator<Item = Self>) -> Option<Self> {
        amounts.into_iter().try_fold(Self::ZERO, Self::checked_add)
    }

    /// For chains whose amounts are signed 64-bit integers (TRON).
    pub fn to_i64(&self) -> Option<i64> {
        i64::try_from(self.0).ok()
    }

    pub fn to_u64(&self) -> Option<u64> {
        u64::try_from(self.0).ok()
    }

    pub fn to_u128(&self) -> Option<u128> {
        u128::try_from(self.0).ok()
    }

    /// `None` for a negative number, which no amount is.
    pub fn from_i64(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Self::from)
    }
}

impl From<u64> for RawAmount {
    fn from(value: u64) -> Self {
        Self(U256::from(value))
    }
}

impl From<u128> for RawAmount {
    fn from(value: u128) -> Self {
        Self(U256::from(value))
    }
}

impl From<U256> for RawAmount {
    fn from(value: U256) -> Self {
        Self(value)
    }
}

impl From<RawAmount> for U256 {
    fn from(amount: RawAmount) -> Self {
        amount.0
    }
}

impl fmt::Display for RawAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for RawAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawAmount({})", self.0)
    }
}

impl FromStr for RawAmount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        check_digits(text, 0)?;
        check_leading_zeros(text)?;
        parse_digits(text)
    }
}

serde_as_text!(RawAmount, "an amount in raw units, as a string of decimal digits");

/// How many digits after the point an asset has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Decimals(u8);

impl Decimals {
    /// 10^77 is the largest power of ten below 2^256; with more decimals not even 1 could be written.
    pub const MAX: Self = Self(77);

    pub fn new(decimals: u8) -> Result<Self, AmountError> {
        Self::try_from(u32::from(decimals))
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u32> for Decimals {
    type Error = AmountError;

    fn try_from(found: u32) -> Result<Self, AmountError> {
        match u8::try_from(found) {
            Ok(decimals) if decimals <= Self::MAX.0 => Ok(Self(decimals)),
            _ => Err(AmountError::TooManyDecimals { found }),
        }
    }
}

impl From<Decimals> for u32 {
    fn from(decimals: Decimals) -> Self {
        Self::from(decimals.0)
    }
}

impl fmt::Display for Decimals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The human form of an amount. It has no values: once read, an amount is a [`RawAmount`].
#[derive(Debug)]
pub enum Amount {}

impl Amount {
    /// Reads "12.5" as raw units of an asset with that many decimals.
    pub fn parse(human: &str, decimals: Decimals) -> Result<RawAmount, AmountError> {
        let (whole, fraction) = split(human)?;
        let decimals = decimals.get();
        let Some(padding) = usize::from(decimals).checked_sub(fraction.len()) else {
            return Err(AmountError::TooPrecise { digits: fraction.len(), decimals });
        };
        let mut digits = String::with_capacity(whole.len().min(MAX_DIGITS + 1) + usize::from(decimals));
        // Zeros in front would count against the digit limit although they carry nothing.
        for part in [whole, fraction] {
            let part = if digits.is_empty() { part.trim_start_matches('0') } else { part };
            if digits.len() + part.len() > MAX_DIGITS {
                return Err(AmountError::Overflow);
            }
            digits.push_str(part);
        }
        if digits.is_empty() {
            return Ok(RawAmount::ZERO);
        }
        digits.extend(std::iter::repeat_n('0', padding));
        parse_digits(&digits)
    }

    /// The same amount without the zeros that end its fraction: columns of a fixed scale write 100 as
    /// "100.000000000000000000" whatever the asset. No digit that carries a value is dropped; whether the asset has room
    /// for those that are left is for [`Amount::parse`] to say.
    pub fn without_padding(human: &str) -> Result<&str, AmountError> {
        let (whole, fraction) = split(human)?;
        Ok(match fraction.trim_end_matches('0') {
            "" => whole,
            kept => &human[..whole.len() + 1 + kept.len()],
        })
    }
}

/// The digits before and after the point; after it there may be none only where there is no point.
fn split(human: &str) -> Result<(&str, &str), AmountError> {
    let (whole, fraction) = match human.split_once('.') {
        None => (human, None),
        Some((whole, fraction)) => (whole, Some(fraction)),
    };
    if whole.is_empty() && fraction.is_some() {
        return Err(AmountError::NoWholePart);
    }
    check_digits(whole, 0)?;
    check_leading_zeros(whole)?;
    match fraction {
        None => Ok((whole, "")),
        Some("") => Err(AmountError::NoFraction),
        Some(fraction) => {
            check_digits(fraction, whole.len() + 1)?;
            Ok((whole, fraction))
        }
    }
}

/// Writes an amount as people do: the shortest text [`Amount::parse`] reads back as the same amount.
pub fn format_amount(amount: RawAmount, decimals: Decimals) -> String {
    let places = usize::from(decimals.get());
    // At least one digit stays in front of the point.
    let digits = format!("{:0>width$}", amount.0.to_string(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

/// 2^256 - 1 has 78 digits.
const MAX_DIGITS: usize = 78;

/// ASCII digits only; `offset` is where this part begins in what the caller was given.
fn check_digits(text: &str, offset: usize) -> Result<(), AmountError> {
    if text.is_empty() {
        return Err(AmountError::Empty);
    }
    if offset == 0 && text.starts_with(['-', '+', '\u{2212}']) {
        return Err(AmountError::Signed);
    }
    match text.char_indices().find(|(_, character)| !character.is_ascii_digit()) {
        None => Ok(()),
        Some((at, character)) => Err(AmountError::NotADigit { character, at: offset + at }),
    }
}

fn check_leading_zeros(digits: &str) -> Result<(), AmountError> {
    if digits.len() > 1 && digits.starts_with('0') { Err(AmountError::LeadingZeros) } else { Ok(()) }
}

/// `digits` are known to be ASCII digits without leading zeros, so length alone bounds the work.
fn parse_digits(digits: &str) -> Result<RawAmount, AmountError> {
    if digits.len() > MAX_DIGITS {
        return Err(AmountError::Overflow);
    }
    U256::from_str_radix(digits, 10).map(RawAmount).map_err(|_| AmountError::Overflow)
}

#[cfg(test)]
mod tests;
