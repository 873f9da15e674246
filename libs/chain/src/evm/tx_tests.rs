//! Signed bytes: what is accepted, and that any change of any field is named.

use alloy::consensus::{SignableTransaction as _, TxEip2930};
use alloy::eips::eip2718::Encodable2718 as _;
use alloy_signer::SignerSync as _;
use alloy_signer_local::PrivateKeySigner;
use payment::Transfer;
use proptest::prelude::*;
use types::{Address as AnyAddress, AddressFormat, RawAmount};

use super::*;

fn signer() -> PrivateKeySigner {
    PrivateKeySigner::from_slice(&[7; 32]).unwrap()
}

fn sign(tx: &UnsignedTx) -> Vec<u8> {
    let typed = tx.typed();
    let signature = signer().sign_hash_sync(&typed.signature_hash()).unwrap();
    match typed {
        TypedTransaction::Legacy(tx) => TxEnvelope::Legacy(tx.into_signed(signature)).encoded_2718(),
        TypedTransaction::Eip1559(tx) => TxEnvelope::Eip1559(tx.into_signed(signature)).encoded_2718(),
        _ => unreachable!("only two kinds are built"),
    }
}

fn action(asset: AssetRef) -> Action {
    let address = |byte| AnyAddress::from_body(AddressFormat::Evm, [byte; 20]);
    Action::Pay(Transfer {
        asset,
        from: address(1),
        to: address(2),
        amount: RawAmount::from_u256(U256::from(1234)),
    })
}

fn sample(fee: GasFee) -> UnsignedTx {
    let token = AssetRef::Token(AnyAddress::from_body(AddressFormat::Evm, [9; 20]));
    UnsignedTx::new(56, 7, &action(token), 60_000, fee)
}

const DYNAMIC: GasFee = GasFee::Dynamic { max_fee: 10, max_priority: 3 };
const LEGACY: GasFee = GasFee::Legacy { gas_price: 5 };

#[test]
fn both_kinds_come_back_as_they_were_planned() {
    for fee in [DYNAMIC, LEGACY] {
        let tx = sample(fee);
        let raw = sign(&tx);
        let signed = SignedTx::decode(&raw).unwrap();
        assert_eq!(signed.tx, tx);
        assert_eq!(signed.sender, signer().address());
        assert_eq!(signed.hash, hash_of(&raw));
        signed.matches(signer().address(), &tx).unwrap();
    }
}

#[test]
fn a_native_transfer_carries_value_and_no_data() {
    let tx = UnsignedTx::new(56, 0, &action(AssetRef::Native), 21_000, LEGACY);
    assert_eq!((tx.to, tx.value, tx.data.len()), (Address::repeat_byte(2), U256::from(1234), 0));
    let sender = AnyAddress::from_body(AddressFormat::Evm, [1; 20]);
    let cancel = UnsignedTx::new(56, 0, &Action::Cancel { sender }, 21_000, LEGACY);
    assert_eq!((cancel.to, cancel.value, cancel.data.len()), (Address::repeat_byte(1), U256::ZERO, 0));
}

#[test]
fn every_changed_field_is_named() {
    let planned = sample(DYNAMIC);
    type Change = fn(&mut UnsignedTx);
    let changes: [(&str, Change); 7] = [
        ("chain id", |tx| tx.chain_id = 1),
        ("nonce", |tx| tx.nonce += 1),
        ("to", |tx| tx.to = Address::repeat_byte(0xee)),
        ("value", |tx| tx.value = U256::from(1)),
        ("data", |tx| tx.data = erc20::transfer_calldata(Address::repeat_byte(0xee), U256::from(1234))),
        ("gas limit", |tx| tx.gas_limit += 1),
        ("fee", |tx| tx.fee = GasFee::Dynamic { max_fee: 11, max_priority: 3 }),
    ];
    for (name, change) in changes {
        let mut other = planned.clone();
        change(&mut other);
        let signed = SignedTx::decode(&sign(&other)).unwrap();
        match signed.matches(signer().address(), &planned) {
            Err(SignedError::Mismatch { field, .. }) => assert_eq!(field, name),
            unexpected => panic!("{name}: {unexpected:?}"),
        }
    }
    let signed = SignedTx::decode(&sign(&planned)).unwrap();
    let error = signed.matches(Address::repeat_byte(0xee), &planned).unwrap_err();
    assert!(matches!(error, SignedError::Mismatch { field: "sender", .. }));
}

#[test]
fn bytes_of_any_other_kind_are_refused() {
    let raw = sign(&sample(DYNAMIC));
    let mut longer = raw.clone();
    longer.push(0);
    assert!(SignedTx::decode(&longer).is_err(), "bytes after it");
    assert!(SignedTx::decode(&raw[..raw.len() - 1]).is_err(), "cut short");
    assert!(SignedTx::decode(&[]).is_err(), "nothing");

    let access = TxEip2930 { chain_id: 56, to: TxKind::Call(Address::ZERO), ..Default::default() };
    let signature = signer().sign_hash_sync(&access.signature_hash()).unwrap();
    let raw = TxEnvelope::Eip2930(access.into_signed(signature)).encoded_2718();
    assert!(SignedTx::decode(&raw).is_err(), "access list kind");

    let unprotected = TxLegacy { to: TxKind::Call(Address::ZERO), ..Default::default() };
    let signature = signer().sign_hash_sync(&unprotected.signature_hash()).unwrap();
    let raw = TxEnvelope::Legacy(unprotected.into_signed(signature)).encoded_2718();
    assert!(SignedTx::decode(&raw).is_err(), "valid on every chain");

    let creation = TxLegacy { chain_id: Some(56), to: TxKind::Create, ..Default::default() };
    let signature = signer().sign_hash_sync(&creation.signature_hash()).unwrap();
    let raw = TxEnvelope::Legacy(creation.into_signed(signature)).encoded_2718();
    assert!(SignedTx::decode(&raw).is_err(), "contract creation");
}

#[test]
fn the_mirrored_signature_is_refused() {
    let tx = sample(DYNAMIC);
    let TypedTransaction::Eip1559(typed) = tx.typed() else { panic!("dynamic") };
    let signature = signer().sign_hash_sync(&typed.signature_hash()).unwrap();
    let order =
        U256::from_str_radix("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16).unwrap();
    let mirrored = alloy_primitives::Signature::new(signature.r(), order - signature.s(), !signature.v());
    let raw = TxEnvelope::Eip1559(typed.into_signed(mirrored)).encoded_2718();
    assert_eq!(SignedTx::decode(&raw), Err(SignedError::BadSignature));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = SignedTx::decode(&raw);
    }

    /// One flipped bit is either undecodable, or yields another sender or other fields.
    #[test]
    fn no_flipped_bit_passes_for_the_plan(position in 0usize..8 * 180, legacy: bool) {
        let tx = sample(if legacy { LEGACY } else { DYNAMIC });
        let mut raw = sign(&tx);
        let bit = position % (raw.len() * 8);
        raw[bit / 8] ^= 1 << (bit % 8);
        let passes = SignedTx::decode(&raw).is_ok_and(|signed| signed.matches(signer().address(), &tx).is_ok());
        prop_assert!(!passes);
    }
}
