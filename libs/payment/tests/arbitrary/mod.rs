//! Random values of the vocabulary, for the property tests of this crate and of the conversions in `libs/proto`.
#![allow(dead_code, reason = "each test that includes this file uses a part of it")]
#![allow(unreachable_pub, reason = "included by several test crates")]

use alloy_primitives::U256;
use chrono::{DateTime, TimeDelta, Utc};
use payment::{
    Action, AssetRef, Binding, BlockReference, ContractCall, Cost, Effect, Finding, GasFee, Inclusion, Price,
    Transfer, VoidProof, Window,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use types::{Address, AddressFormat, RawAmount, TxHash};

/// TRON's numbers, and those that databases store, are signed.
pub const LARGEST_SIGNED: u64 = i64::MAX as u64;

pub fn format() -> impl Strategy<Value = AddressFormat> {
    prop_oneof![Just(AddressFormat::Evm), Just(AddressFormat::Tron)]
}

pub fn address(format: AddressFormat) -> impl Strategy<Value = Address> {
    any::<[u8; 20]>().prop_map(move |body| Address::from_body(format, body))
}

pub fn hash() -> impl Strategy<Value = TxHash> {
    any::<[u8; 32]>().prop_map(TxHash::from_array)
}

pub fn amount() -> impl Strategy<Value = RawAmount> {
    let any_amount = any::<[u64; 4]>().prop_map(|limbs| RawAmount::from_u256(U256::from_limbs(limbs)));
    prop_oneof![any_amount, Just(RawAmount::ZERO), Just(RawAmount::MAX)]
}

pub fn transfer(format: AddressFormat) -> impl Strategy<Value = Transfer> {
    (option::of(address(format)), address(format), address(format), amount()).prop_map(
        |(contract, from, to, amount)| Transfer { asset: AssetRef::of_contract(contract), from, to, amount },
    )
}

/// Cancellations and contract calls exist on EVM chains only.
pub fn action(format: AddressFormat) -> BoxedStrategy<Action> {
    let pay = transfer(format).prop_map(Action::Pay);
    let call = (address(format), address(format), vec(any::<u8>(), 0..80))
        .prop_map(|(sender, contract, data)| Action::Call(ContractCall { sender, contract, data }));
    match format {
        AddressFormat::Evm => {
            prop_oneof![pay, address(format).prop_map(|sender| Action::Cancel { sender }), call].boxed()
        }
        AddressFormat::Tron => pay.boxed(),
    }
}

pub fn effect(sender: Address) -> impl Strategy<Value = Effect> {
    let format = sender.format();
    prop_oneof![
        transfer(format).prop_map(move |transfer| Effect::Moves(Transfer { from: sender, ..transfer })),
        Just(Effect::Closes { sender }),
        address(format).prop_map(move |contract| Effect::Succeeds { sender, contract }),
    ]
}

pub fn fee() -> impl Strategy<Value = GasFee> {
    let unit = || prop_oneof![any::<u128>(), Just(0), Just(u128::MAX)];
    prop_oneof![
        (unit(), unit()).prop_map(|(max_fee, max_priority)| GasFee::Dynamic { max_fee, max_priority }),
        unit().prop_map(|gas_price| GasFee::Legacy { gas_price }),
    ]
}

pub fn price(format: AddressFormat) -> BoxedStrategy<Price> {
    match format {
        AddressFormat::Evm => {
            (any::<u64>(), fee()).prop_map(|(limit, fee)| Price::Gas { limit, fee }).boxed()
        }
        AddressFormat::Tron => (0..=LARGEST_SIGNED).prop_map(|sun| Price::FeeLimit { sun }).boxed(),
    }
}

pub fn binding(sender: Address) -> BoxedStrategy<Binding> {
    let window = (any::<[u8; 2]>(), any::<[u8; 8]>(), 0..=LARGEST_SIGNED, 0..=LARGEST_SIGNED).prop_map(
        |(number_end, hash_middle, expiration_ms, made_ms)| Window {
            reference: BlockReference { number_end, hash_middle },
            expiration_ms,
            made_ms,
        },
    );
    match sender.format() {
        AddressFormat::Evm => any::<u64>().prop_map(move |nonce| Binding::Nonce { sender, nonce }).boxed(),
        AddressFormat::Tron => window.prop_map(move |window| Binding::Window { sender, window }).boxed(),
    }
}

pub fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (-62_135_596_800..=253_402_300_799_i64, 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| {
        DateTime::from_timestamp(seconds, nanos).expect("within years 1 to 9999")
    })
}

pub fn inclusion() -> impl Strategy<Value = Inclusion> {
    (hash(), any::<u64>(), option::of(hash()), any::<u64>(), any::<u128>(), amount()).prop_map(
        |(tx, block_number, block_hash, units, unit_price, fee)| Inclusion {
            tx,
            block_number,
            block_hash,
            cost: Cost { units, unit_price, fee },
        },
    )
}

/// Hashes, and a proof of them where there is one.
fn void() -> impl Strategy<Value = (Vec<TxHash>, Option<VoidProof>)> {
    (vec(hash(), 0..4), option::of((vec(any::<u8>(), 1..65), instant()))).prop_map(|(hashes, proof)| {
        let of_hashes = hashes.clone();
        let proof =
            proof.map(|(signature, attested_at)| VoidProof { tx_hashes: of_hashes, signature, attested_at });
        (hashes, proof)
    })
}

pub fn finding() -> impl Strategy<Value = Finding> {
    let waited = (0..1_000_000_000_i64, 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanos)| TimeDelta::new(seconds, nanos).expect("some years"));
    prop_oneof![
        inclusion().prop_map(Finding::Settled),
        (inclusion(), ".*", any::<bool>(), void()).prop_map(
            |(inclusion, reason, value_moved, (void, proof))| {
                Finding::Reverted { inclusion, reason, value_moved, void, proof }
            }
        ),
        (void(), option::of(hash()), ".*").prop_map(|((void, proof), foreign, reason)| Finding::Void {
            void,
            foreign,
            reason,
            proof
        }),
        (inclusion(), void()).prop_map(|(inclusion, (void, proof))| Finding::Cancelled {
            inclusion,
            void,
            proof
        }),
        (hash(), waited).prop_map(|(newest, waited)| Finding::Stuck { newest, waited }),
        (hash(), option::of(hash())).prop_map(|(tx, block_hash)| Finding::Reopened { tx, block_hash }),
        (option::of(hash()), ".*").prop_map(|(tx, reason)| Finding::Contradicted { tx, reason }),
    ]
}
