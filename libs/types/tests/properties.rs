//! What holds for every value and every text: parsing never panics, accepts only what it writes back, and loses
//! nothing.

use std::time::Duration;

use alloy_primitives::U256;
use proptest::prelude::*;
use types::{
    Address, AddressFormat, Amount, AssetSymbol, Backoff, ChainName, Decimals, PaymentDigest, Priority,
    RawAmount, TxHash, WithdrawalId, format_amount,
};

/// Amounts of every magnitude; uniform 256-bit numbers would nearly all have 77 digits.
fn amounts() -> impl Strategy<Value = RawAmount> {
    (any::<[u8; 32]>(), 0usize..=256).prop_map(|(bytes, shift)| {
        RawAmount::from_u256(U256::from_be_bytes(bytes).checked_shr(shift).unwrap_or(U256::ZERO))
    })
}

fn decimals() -> impl Strategy<Value = Decimals> {
    (0u8..=77).prop_map(|decimals| Decimals::new(decimals).expect("at most 77"))
}

fn formats() -> impl Strategy<Value = AddressFormat> {
    prop_oneof![Just(AddressFormat::Evm), Just(AddressFormat::Tron)]
}

/// Anything at all, and texts near enough to the real ones to get past the first check.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9+_. eE-]{0,90}",
        "[0-9]{1,80}",
        "[0-9]{1,40}\\.[0-9]{1,40}",
        "0x[0-9a-fA-F]{38,42}",
        "(0x)?[0-9a-f]{62,66}",
        "T[1-9A-HJ-NP-Za-km-z]{32,34}",
        "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "[0-9a-f-]{32,38}",
        "[a-zA-Z0-9._-]{0,34}",
    ]
}

proptest! {
    #[test]
    fn raw_amounts_read_back(amount in amounts()) {
        prop_assert_eq!(amount.to_string().parse(), Ok(amount));
    }

    #[test]
    fn human_amounts_read_back_at_every_precision(amount in amounts(), decimals in decimals()) {
        let text = format_amount(amount, decimals);
        prop_assert_eq!(Amount::parse(&text, decimals), Ok(amount), "{}", text);
    }

    #[test]
    fn an_accepted_human_amount_is_worth_what_it_says(text in texts(), decimals in decimals()) {
        if let Ok(amount) = Amount::parse(&text, decimals) {
            let written = format_amount(amount, decimals);
            let shortest = if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.')
            } else {
                &text
            };
            prop_assert_eq!(written, shortest);
        }
    }

    #[test]
    fn adding_then_subtracting_gives_the_amount_back(a in amounts(), b in amounts()) {
        if let Some(sum) = a.checked_add(b) {
            prop_assert_eq!(sum.checked_sub(b), Some(a));
            prop_assert!(sum >= a);
        }
        prop_assert_eq!(a.checked_sub(b).is_some(), a >= b);
    }

    #[test]
    fn narrowed_amounts_are_the_same_number(amount in amounts()) {
        let text = amount.to_string();
        prop_assert_eq!(amount.to_i64(), text.parse::<i64>().ok());
        prop_assert_eq!(amount.to_u64(), text.parse::<u64>().ok());
        prop_assert_eq!(amount.to_u128(), text.parse::<u128>().ok());
    }

    #[test]
    fn accepted_texts_are_canonical(text in texts()) {
        if let Ok(amount) = text.parse::<RawAmount>() {
            prop_assert_eq!(amount.to_string(), text.as_str());
        }
        if let Ok(name) = text.parse::<ChainName>() {
            prop_assert_eq!(name.as_str(), text.as_str());
        }
        if let Ok(symbol) = text.parse::<AssetSymbol>() {
            prop_assert_eq!(symbol.as_str(), text.as_str());
        }
        if let Ok(priority) = text.parse::<Priority>() {
            prop_assert_eq!(priority.as_str(), text.as_str());
        }
        if let Ok(digest) = text.parse::<PaymentDigest>() {
            prop_assert_eq!(digest.to_string(), text.as_str());
        }
        // These three may differ from their canonical form in letter case, and a hash in its `0x`; in nothing else.
        if let Ok(id) = text.parse::<WithdrawalId>() {
            prop_assert_eq!(id.to_string(), text.to_ascii_lowercase());
        }
        if let Ok(hash) = text.parse::<TxHash>() {
            prop_assert_eq!(hash.bare(), text.trim_start_matches("0x").to_ascii_lowercase());
        }
        if let Ok(address) = Address::parse(AddressFormat::Evm, &text) {
            prop_assert!(address.to_string().eq_ignore_ascii_case(&text));
        }
        if let Ok(address) = Address::parse(AddressFormat::Tron, &text) {
            prop_assert_eq!(address.to_string(), text.as_str());
        }
    }

    #[test]
    fn addresses_read_back(format in formats(), body in any::<[u8; 20]>()) {
        let address = Address::from_body(format, body);
        let text = address.to_string();
        prop_assert_eq!(Address::parse(format, &text), Ok(address));
        prop_assert_eq!(text.parse(), Ok(address));
        prop_assert_eq!(address.body(), body);
    }

    #[test]
    fn no_address_of_one_network_is_one_of_the_other(body in any::<[u8; 20]>()) {
        let evm = Address::from_body(AddressFormat::Evm, body);
        let tron = Address::from_body(AddressFormat::Tron, body);
        prop_assert!(Address::parse(AddressFormat::Tron, &evm.to_string()).is_err());
        prop_assert!(Address::parse(AddressFormat::Evm, &tron.to_string()).is_err());
        prop_assert_eq!(Address::parse_tron_hex(&tron.tron_hex()), Ok(tron));
    }

    #[test]
    fn one_wrong_character_in_a_tron_address_is_noticed(
        body in any::<[u8; 20]>(),
        at in 0usize..34,
        other in "[1-9A-HJ-NP-Za-km-z]",
    ) {
        let address = Address::from_body(AddressFormat::Tron, body).to_string();
        let mut typo = address.clone();
        typo.replace_range(at..=at, &other);
        prop_assume!(typo != address);
        prop_assert!(Address::parse(AddressFormat::Tron, &typo).is_err());
    }

    #[test]
    fn hashes_read_back(bytes in any::<[u8; 32]>()) {
        let hash = TxHash::from_array(bytes);
        prop_assert_eq!(hash.to_string().parse(), Ok(hash));
        prop_assert_eq!(hash.bare().parse(), Ok(hash));
    }

    #[test]
    fn backoff_grows_up_to_its_cap_and_never_beyond(
        base_ms in any::<u64>(),
        cap_ms in proptest::option::of(any::<u64>()),
        n in prop_oneof![0u32..200, any::<u32>()],
    ) {
        let cap = cap_ms.map(Duration::from_millis);
        let backoff = Backoff { base: Duration::from_millis(base_ms), cap, max_tries: 5 };
        let (now, next) = (backoff.delay(n), backoff.delay(n.saturating_add(1)));
        prop_assert!(now <= next);
        prop_assert!(cap.is_none_or(|cap| next <= cap));
        prop_assert!(now >= cap.map_or(backoff.base, |cap| backoff.base.min(cap)));
        // Exactly doubled, unless the cap or the end of the range was reached.
        prop_assert!(next == now.saturating_mul(2) || Some(next) == cap || next == Duration::MAX);
    }
}
