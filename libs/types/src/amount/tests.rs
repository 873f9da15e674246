//! Amounts: what is read, what is refused, and that nothing is rounded.

use super::*;

const MAX: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
const MAX_PLUS_1: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639936";

fn raw(text: &str) -> Result<RawAmount, AmountError> {
    text.parse()
}

fn human(text: &str, decimals: u8) -> Result<RawAmount, AmountError> {
    Amount::parse(text, Decimals::new(decimals).unwrap())
}

#[test]
fn raw_amounts_are_canonical_decimal_digits() {
    assert_eq!(raw("0"), Ok(RawAmount::ZERO));
    assert_eq!(raw("10"), Ok(RawAmount::from(10u64)));
    assert_eq!(raw(MAX), Ok(RawAmount::MAX));
    assert_eq!(RawAmount::MAX.to_string(), MAX);
    assert_eq!(raw(""), Err(AmountError::Empty));
    assert_eq!(raw("+1"), Err(AmountError::Signed));
    assert_eq!(raw("-1"), Err(AmountError::Signed));
    assert_eq!(raw("-0"), Err(AmountError::Signed));
    assert_eq!(raw("\u{2212}1"), Err(AmountError::Signed));
    assert_eq!(raw("007"), Err(AmountError::LeadingZeros));
    assert_eq!(raw("00"), Err(AmountError::LeadingZeros));
    assert_eq!(raw(MAX_PLUS_1), Err(AmountError::Overflow));
    assert_eq!(raw(&"9".repeat(1000)), Err(AmountError::Overflow));
    for (text, character, at) in [
        ("1e3", 'e', 1),
        ("1_000", '_', 1),
        ("1,000", ',', 1),
        (" 1", ' ', 0),
        ("1\n", '\n', 1),
        ("1.0", '.', 1),
        ("0x10", 'x', 1),
        ("١", '١', 0),
        ("12３", '３', 2),
    ] {
        assert_eq!(raw(text), Err(AmountError::NotADigit { character, at }), "{text:?}");
    }
}

#[test]
fn padding_is_dropped_and_no_other_digit_is() {
    for (padded, kept) in [
        ("100.000000000000000000", "100"),
        ("12.500000000000000000", "12.5"),
        ("0.000000000000000000", "0"),
        ("0.010", "0.01"),
        ("100", "100"),
        ("1.000000000000000001", "1.000000000000000001"),
    ] {
        assert_eq!(Amount::without_padding(padded), Ok(kept));
    }
    let kept = Amount::without_padding("1.000000100000000000").unwrap();
    assert_eq!(human(kept, 6), Err(AmountError::TooPrecise { digits: 7, decimals: 6 }), "never rounded");
    assert_eq!(Amount::without_padding("1e2"), Err(AmountError::NotADigit { character: 'e', at: 1 }));
    assert_eq!(Amount::without_padding("-1.0"), Err(AmountError::Signed));
    assert_eq!(Amount::without_padding("1."), Err(AmountError::NoFraction));
    assert_eq!(Amount::without_padding(".50"), Err(AmountError::NoWholePart));
    assert_eq!(Amount::without_padding(""), Err(AmountError::Empty));
}

#[test]
fn human_amounts_become_raw_units_exactly() {
    assert_eq!(human("12.5", 6), raw("12500000"));
    assert_eq!(human("12.50", 6), raw("12500000"));
    assert_eq!(human("0.000001", 6), raw("1"));
    assert_eq!(human("0", 18), raw("0"));
    assert_eq!(human("0.0", 18), raw("0"));
    assert_eq!(human("1", 0), raw("1"));
    assert_eq!(human("1", 77), raw(&format!("1{}", "0".repeat(77))));
    assert_eq!(human(MAX, 0), Ok(RawAmount::MAX));
    // A double would round this one.
    assert_eq!(human("9007199254740993.000000000000000001", 18), raw("9007199254740993000000000000000001"));
    assert_eq!(human(&format!("{}.{}", &MAX[..60], &MAX[60..]), 18), Ok(RawAmount::MAX));
    assert_eq!(human(&format!("0.{}1", "0".repeat(76)), 77), raw("1"));
}

#[test]
fn human_amounts_are_refused_with_the_reason() {
    assert_eq!(human("", 6), Err(AmountError::Empty));
    assert_eq!(human(".5", 6), Err(AmountError::NoWholePart));
    assert_eq!(human(".", 6), Err(AmountError::NoWholePart));
    assert_eq!(human("5.", 6), Err(AmountError::NoFraction));
    assert_eq!(human("-1", 6), Err(AmountError::Signed));
    assert_eq!(human("+1", 6), Err(AmountError::Signed));
    assert_eq!(human("-.5", 6), Err(AmountError::Signed));
    assert_eq!(human("01.5", 6), Err(AmountError::LeadingZeros));
    assert_eq!(human("0.1234567", 6), Err(AmountError::TooPrecise { digits: 7, decimals: 6 }));
    assert_eq!(human("1.0", 0), Err(AmountError::TooPrecise { digits: 1, decimals: 0 }));
    assert_eq!(human(MAX, 1), Err(AmountError::Overflow));
    assert_eq!(human(MAX_PLUS_1, 0), Err(AmountError::Overflow));
    assert_eq!(human("2", 77), Err(AmountError::Overflow));
    assert_eq!(human(&"9".repeat(10_000), 18), Err(AmountError::Overflow));
    for (text, character, at) in [
        ("1e3", 'e', 1),
        ("1.5e3", 'e', 3),
        ("1.2.3", '.', 3),
        ("1.-5", '-', 2),
        ("1. 5", ' ', 2),
        ("1,5", ',', 1),
        ("NaN", 'N', 0),
        ("1.٥", '٥', 2),
    ] {
        assert_eq!(human(text, 18), Err(AmountError::NotADigit { character, at }), "{text:?}");
    }
    let error = human("0.1234567", 6).unwrap_err();
    assert_eq!(error.to_string(), "amount has 7 digits after the decimal point, the asset has 6 decimals");
}

#[test]
fn amounts_are_written_as_short_as_they_can_be_read_back() {
    let write = |text: &str, decimals| format_amount(raw(text).unwrap(), Decimals::new(decimals).unwrap());
    assert_eq!(write("12500000", 6), "12.5");
    assert_eq!(write("1", 18), "0.000000000000000001");
    assert_eq!(write("1000000", 6), "1");
    assert_eq!(write("100", 0), "100");
    assert_eq!(write("0", 18), "0");
    assert_eq!(write("0", 0), "0");
    assert_eq!(write(MAX, 77), format!("{}.{}", &MAX[..1], &MAX[1..]));
}

#[test]
fn decimals_end_where_one_unit_still_fits() {
    assert_eq!(Decimals::new(77), Ok(Decimals::MAX));
    assert_eq!(Decimals::new(78), Err(AmountError::TooManyDecimals { found: 78 }));
    assert_eq!(Decimals::try_from(256 + 6), Err(AmountError::TooManyDecimals { found: 262 }));
    assert_eq!(
        Decimals::new(78).unwrap_err().to_string(),
        "78 decimals are more than the 77 a 256-bit amount can carry"
    );
    assert_eq!(serde_json::from_str::<Decimals>("18").unwrap().get(), 18);
    assert!(serde_json::from_str::<Decimals>("78").is_err());
    assert!(serde_json::from_str::<Decimals>("-1").is_err());
}

#[test]
fn arithmetic_never_leaves_the_range() {
    let one = RawAmount::from(1u64);
    assert_eq!(RawAmount::MAX.checked_add(one), None);
    assert_eq!(RawAmount::ZERO.checked_sub(one), None);
    assert_eq!(RawAmount::ZERO.saturating_sub(one), RawAmount::ZERO);
    assert_eq!(RawAmount::MAX.checked_mul(2), None);
    assert_eq!(one.checked_mul(7), Some(RawAmount::from(7u64)));
    assert_eq!(RawAmount::checked_sum([one, one, one]), Some(RawAmount::from(3u64)));
    assert_eq!(RawAmount::checked_sum([RawAmount::MAX, one]), None);
    assert_eq!(RawAmount::checked_sum([]), Some(RawAmount::ZERO));
}

#[test]
fn narrowing_refuses_what_does_not_fit() {
    let at = |value: u128| RawAmount::from(value);
    assert_eq!(at(i64::MAX as u128).to_i64(), Some(i64::MAX));
    assert_eq!(at(i64::MAX as u128 + 1).to_i64(), None);
    assert_eq!(at(u64::MAX as u128).to_u64(), Some(u64::MAX));
    assert_eq!(at(u64::MAX as u128 + 1).to_u64(), None);
    assert_eq!(at(u128::MAX).to_u128(), Some(u128::MAX));
    assert_eq!(at(u128::MAX).checked_add(at(1)).unwrap().to_u128(), None);
    assert_eq!(RawAmount::from_i64(-1), None);
    assert_eq!(RawAmount::from_i64(5), Some(at(5)));
}

#[test]
fn json_carries_amounts_as_strings_only() {
    assert_eq!(serde_json::to_string(&RawAmount::MAX).unwrap(), format!("\"{MAX}\""));
    assert_eq!(serde_json::from_str::<RawAmount>(&format!("\"{MAX}\"")).unwrap(), RawAmount::MAX);
    assert!(serde_json::from_str::<RawAmount>("5").is_err());
    assert!(serde_json::from_str::<RawAmount>("\"0x5\"").is_err());
}
