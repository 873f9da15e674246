//! Claims about the vocabulary: by example, and over random values of both families of chain.

mod arbitrary;

use alloy_primitives::U256;
use payment::{
    Action, AssetRef, Binding, BindingKind, BlockReference, Closing, ContractCall, Effect, Finding, GasFee,
    Price, Quote, Transfer, WatchedTransaction, Window,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{Address, AddressFormat, RawAmount, TxHash};

use arbitrary::{action, binding, effect, fee, finding, format, price};

fn evm(byte: u8) -> Address {
    Address::from_body(AddressFormat::Evm, [byte; 20])
}

fn transfer() -> Transfer {
    Transfer { asset: AssetRef::Token(evm(3)), from: evm(1), to: evm(2), amount: RawAmount::from(7_u64) }
}

fn call() -> ContractCall {
    ContractCall { sender: evm(1), contract: evm(3), data: vec![1] }
}

#[test]
fn each_action_expects_its_own_effect() {
    let sender = evm(1);
    assert_eq!(Action::Pay(transfer()).effect(), Effect::Moves(transfer()));
    assert_eq!(Action::Cancel { sender }.effect(), Effect::Closes { sender });
    assert_eq!(Action::Call(call()).effect(), Effect::Succeeds { sender, contract: evm(3) });
}

#[test]
fn only_a_cancellation_cancels() {
    assert!(Action::Cancel { sender: evm(1) }.is_cancellation());
    assert!(!Action::Pay(transfer()).is_cancellation() && !Action::Call(call()).is_cancellation());
    let watched = |effect| WatchedTransaction {
        hash: TxHash::from_array([1; 32]),
        effect,
        nonce: Some(1),
        expires_at: None,
        reference_block: 0,
        raw: Vec::new(),
    };
    assert!(watched(Effect::Closes { sender: evm(1) }).is_cancellation());
    assert!(!watched(Effect::Moves(transfer())).is_cancellation());
}

#[test]
fn actions_and_findings_have_stable_names() {
    let actions = [Action::Pay(transfer()), Action::Cancel { sender: evm(1) }, Action::Call(call())];
    assert_eq!(actions.map(|action| action.name()), ["pay", "cancel", "call"]);
    let stuck = Finding::Stuck { newest: TxHash::from_array([1; 32]), waited: chrono::TimeDelta::zero() };
    let lost = Finding::Contradicted { tx: None, reason: String::new() };
    assert_eq!((stuck.name(), lost.name()), ("stuck", "contradicted"));
}

#[test]
fn a_nonce_closes_by_its_number_and_a_window_by_its_time() {
    let nonce = Binding::Nonce { sender: evm(1), nonce: 9 };
    assert_eq!(nonce.closing(), Closing::Nonce { sender: evm(1), nonce: 9 });
    assert_eq!(nonce.kind(), BindingKind::Nonce);
    let sender = Address::from_body(AddressFormat::Tron, [1; 20]);
    let reference = BlockReference { number_end: [1, 2], hash_middle: [3; 8] };
    let window = Binding::Window { sender, window: Window { reference, expiration_ms: 60_000, made_ms: 1 } };
    assert_eq!(window.closing(), Closing::Window { expiration_ms: 60_000 });
    assert_eq!(window.kind(), BindingKind::Window);
}

#[test]
fn a_legacy_price_is_its_own_ceiling_and_tip() {
    let dynamic = GasFee::Dynamic { max_fee: 9, max_priority: 2 };
    assert_eq!((dynamic.ceiling(), dynamic.tip()), (9, 2));
    let legacy = GasFee::Legacy { gas_price: 5 };
    assert_eq!((legacy.ceiling(), legacy.tip()), (5, 5));
}

#[test]
fn the_largest_price_of_the_most_gas_does_not_overflow() {
    for fee in
        [GasFee::Legacy { gas_price: u128::MAX }, GasFee::Dynamic { max_fee: u128::MAX, max_priority: 0 }]
    {
        let cost = fee.cost(u64::MAX);
        assert_eq!(cost.as_u256() / U256::from(u64::MAX), U256::from(u128::MAX));
        assert_eq!(fee.cost(0), RawAmount::ZERO);
    }
}

fn reads_back<T: Serialize + DeserializeOwned + PartialEq>(value: &T) -> bool {
    let json = serde_json::to_string(value).expect("json");
    serde_json::from_str::<T>(&json).expect("the same type") == *value
}

proptest! {
    #[test]
    fn an_effect_has_the_sender_of_its_action(action in format().prop_flat_map(action)) {
        prop_assert_eq!(action.effect().sender(), action.sender());
        prop_assert_eq!(matches!(action.effect(), Effect::Closes { .. }), action.is_cancellation());
    }

    #[test]
    fn a_quote_covers_all_gas_at_the_highest_price(limit: u64, used: u64, fee in fee()) {
        let quote = Quote::for_gas(limit, fee);
        prop_assert_eq!(quote.price, Price::Gas { limit, fee });
        prop_assert_eq!(quote.max_cost.as_u256(), U256::from(limit) * U256::from(fee.ceiling()));
        prop_assert!(fee.cost(used.min(limit)) <= quote.max_cost);
    }

    #[test]
    fn a_binding_closes_for_its_own_sender(
        binding in format().prop_flat_map(arbitrary::address).prop_flat_map(binding),
    ) {
        match binding.closing() {
            Closing::Nonce { sender, .. } => prop_assert_eq!(sender, binding.sender()),
            Closing::Window { .. } => prop_assert_eq!(binding.kind(), BindingKind::Window),
        }
    }

    #[test]
    fn a_proof_covers_exactly_what_the_finding_rules_out(finding in finding()) {
        let void = match &finding {
            Finding::Reverted { void, .. } | Finding::Void { void, .. } | Finding::Cancelled { void, .. } => Some(void),
            _ => None,
        };
        prop_assert_eq!(finding.proof().map(|proof| &proof.tx_hashes), void.filter(|_| finding.proof().is_some()));
        let included = matches!(
            finding,
            Finding::Settled(_) | Finding::Reverted { .. } | Finding::Cancelled { .. }
        );
        prop_assert_eq!(finding.inclusion().is_some(), included);
    }

    #[test]
    fn what_is_stored_as_json_reads_back(
        action in format().prop_flat_map(action),
        effect in format().prop_flat_map(arbitrary::address).prop_flat_map(effect),
        binding in format().prop_flat_map(arbitrary::address).prop_flat_map(binding),
        price in format().prop_flat_map(price),
        finding in finding(),
    ) {
        prop_assert!(reads_back(&action) && reads_back(&effect) && reads_back(&binding));
        // JSON numbers of 128 bits are read without loss, because serde_json is not asked for floats.
        prop_assert!(reads_back(&price));
        prop_assert!(finding.proof().is_none_or(reads_back));
        prop_assert!(finding.inclusion().is_none_or(|inclusion| reads_back(&inclusion.cost)));
    }
}
