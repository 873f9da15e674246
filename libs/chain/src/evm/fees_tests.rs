//! Claims about prices: floors, caps and steps, by example and over random values.

use alloy_primitives::{U128, U256};
use proptest::prelude::*;

use super::*;

const GWEI: u128 = 1_000_000_000;

fn history(base: u128, tips: &[u128]) -> WireFeeHistory {
    WireFeeHistory {
        base_fee_per_gas: vec![U128::from(base); 2],
        reward: Some(tips.iter().map(|tip| vec![U128::from(*tip)]).collect()),
    }
}

#[test]
fn a_dynamic_price_has_room_for_the_base_fee_to_double() {
    let quote = FeePolicy::default().dynamic(&history(10 * GWEI, &[GWEI, 2 * GWEI, 3 * GWEI])).unwrap();
    assert_eq!(quote, GasFee::Dynamic { max_fee: 22 * GWEI, max_priority: 2 * GWEI });
}

#[test]
fn without_a_base_fee_the_floor_is_paid_as_tip() {
    let policy = FeePolicy { min_gas_price: GWEI / 10, ..FeePolicy::default() };
    let quote = policy.dynamic(&history(0, &[0, 0, 0])).unwrap();
    assert_eq!(quote, GasFee::Dynamic { max_fee: GWEI / 10, max_priority: GWEI / 10 });
    let no_history = WireFeeHistory { base_fee_per_gas: Vec::new(), reward: None };
    assert_eq!(policy.dynamic(&no_history).unwrap(), quote);
}

#[test]
fn a_market_above_the_cap_is_refused_not_underpaid() {
    let policy = FeePolicy { max_fee_cap: 5 * GWEI, ..FeePolicy::default() };
    assert_eq!(policy.dynamic(&history(6 * GWEI, &[1])), Err(AboveCap { needed: 6 * GWEI, cap: 5 * GWEI }));
    assert_eq!(policy.legacy(6 * GWEI), Err(AboveCap { needed: 6 * GWEI, cap: 5 * GWEI }));
    assert_eq!(policy.legacy(4 * GWEI), Ok(GasFee::Legacy { gas_price: 4 * GWEI }));
}

#[test]
fn a_bump_is_an_eighth_rounded_up() {
    let quote = GasFee::Legacy { gas_price: 100 };
    assert_eq!(raise(&quote, 125, 1000), Some(GasFee::Legacy { gas_price: 113 }));
    // Asking for less than the least step gives the least step.
    assert_eq!(raise(&quote, 0, 1000), Some(GasFee::Legacy { gas_price: 113 }));
    assert_eq!(raise(&quote, 125, 112), None);
    let zero = GasFee::Dynamic { max_fee: 8, max_priority: 0 };
    assert_eq!(raise(&zero, 125, 1000), Some(GasFee::Dynamic { max_fee: 9, max_priority: 1 }));
}

#[test]
fn a_bump_follows_a_risen_market_but_not_above_the_cap() {
    let policy = FeePolicy { kind: FeeKind::Legacy, max_fee_cap: 1000, ..FeePolicy::default() };
    let previous = GasFee::Legacy { gas_price: 100 };
    let bumped = |market| policy.bump(&previous, Some(&GasFee::Legacy { gas_price: market }));
    assert_eq!(bumped(500), Some(GasFee::Legacy { gas_price: 500 }));
    assert_eq!(bumped(50), Some(GasFee::Legacy { gas_price: 113 }));
    assert_eq!(bumped(5000), Some(GasFee::Legacy { gas_price: 113 }));
}

#[test]
fn a_policy_that_cannot_work_is_refused() {
    let good = FeePolicy::default();
    good.check().unwrap();
    for bad in [
        FeePolicy { max_fee_cap: 0, ..good.clone() },
        FeePolicy { min_gas_price: good.max_fee_cap + 1, ..good.clone() },
        FeePolicy { percentiles: [0, 0, 0, 101], ..good.clone() },
        FeePolicy { bump_permille: 124, ..good.clone() },
        FeePolicy { base_fee_permille: 999, ..good.clone() },
        FeePolicy { history_blocks: 0, ..good.clone() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

fn quote() -> impl Strategy<Value = GasFee> {
    prop_oneof![
        any::<u128>().prop_map(|gas_price| GasFee::Legacy { gas_price }),
        any::<(u128, u128)>()
            .prop_map(|(a, b)| GasFee::Dynamic { max_fee: a.max(b), max_priority: a.min(b) }),
    ]
}

proptest! {
    #[test]
    fn every_part_of_a_bump_rises_by_a_node_s_tenth(quote in quote(), permille in 0u32..20_000, cap: u128) {
        if let Some(raised) = raise(&quote, permille, cap) {
            let parts = |quote: &GasFee| match *quote {
                GasFee::Dynamic { max_fee, max_priority } => vec![max_fee, max_priority],
                GasFee::Legacy { gas_price } => vec![gas_price],
            };
            for (old, new) in parts(&quote).into_iter().zip(parts(&raised)) {
                prop_assert!(new > old);
                // geth: new * 100 >= old * 110, without overflow.
                prop_assert!(U256::from(new) * U256::from(100) >= U256::from(old) * U256::from(110));
            }
            prop_assert!(raised.ceiling() <= cap);
            prop_assert_eq!(std::mem::discriminant(&raised), std::mem::discriminant(&quote));
            if let GasFee::Dynamic { max_fee, max_priority } = raised {
                prop_assert!(max_priority <= max_fee);
            }
        }
    }

    #[test]
    fn quotes_keep_floor_and_cap(
        base in 0u128..1u128 << 100,
        tips in prop::collection::vec(0u128..1u128 << 100, 0..30),
        cap in 1u128..1u128 << 100,
        floor: u128,
        tip_cap: u128,
    ) {
        let policy = FeePolicy {
            max_fee_cap: cap,
            max_priority_cap: tip_cap,
            min_gas_price: floor % cap,
            ..FeePolicy::default()
        };
        match policy.dynamic(&history(base, &tips)) {
            Err(AboveCap { needed, cap }) => prop_assert!(needed > cap),
            Ok(GasFee::Legacy { .. }) => prop_assert!(false, "asked for a dynamic price"),
            Ok(GasFee::Dynamic { max_fee, max_priority }) => {
                prop_assert!(max_fee <= cap && max_priority <= max_fee);
                // What is paid now: never below the floor, and the base fee is covered.
                prop_assert!(max_fee >= base);
                prop_assert!((base + max_priority).min(max_fee) >= policy.min_gas_price);
            }
        }
    }
}
