//! The devnet's bytes agree with what official protobufs, tronweb and tronpy produce.
//!
//! `TRON_VECTORS` may name another file of the same shape.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use prost::Message;
use secp256k1::{PublicKey, SECP256K1, SecretKey};
use serde_json::Value;
use tron_devnet::crypto::{Address, recover, sha256, sign};
use tron_devnet::render;
use tron_devnet::wire::{
    BlockHeaderRaw, Operation, Raw, SignedTx, TransferContract, TriggerSmartContract, block_id,
};

fn vectors() -> Value {
    // Cargo runs the tests of each crate in the crate's own folder; a relative path means the same file for all of them.
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let default = "tools/tron-devnet/tests/tron_vectors.json";
    let path = root.join(std::env::var("TRON_VECTORS").unwrap_or_else(|_| default.to_owned()));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A file without entries of some kind would prove nothing.
fn list(value: &Value) -> &[Value] {
    let list = value.as_array().unwrap();
    assert!(!list.is_empty());
    list
}

fn bytes(value: &Value, key: &str) -> Vec<u8> {
    hex::decode(text(value, key)).unwrap()
}

fn number(value: &Value, key: &str) -> i64 {
    render::integer(&value[key]).unwrap_or_default()
}

fn secret(value: &Value) -> SecretKey {
    SecretKey::from_byte_array(bytes(value, "private_key").try_into().unwrap()).unwrap()
}

fn build(vector: &Value) -> Raw {
    let input = &vector["input"];
    let call = match text(vector, "kind") {
        "TransferContract" => Operation::Transfer(TransferContract {
            owner_address: bytes(input, "owner_hex"),
            to_address: bytes(input, "to_hex"),
            amount: number(input, "amount_sun"),
        }),
        "TriggerSmartContract" => Operation::Trigger(TriggerSmartContract {
            owner_address: bytes(input, "owner_hex"),
            contract_address: bytes(input, "contract_hex"),
            data: bytes(input, "call_data"),
            ..TriggerSmartContract::default()
        }),
        other => panic!("the vectors hold an unknown kind {other}"),
    };
    let block = bytes(input, "ref_block_id");
    Raw {
        ref_block_bytes: block[6..8].to_vec(),
        ref_block_hash: block[8..16].to_vec(),
        expiration: number(input, "expiration_ms"),
        data: bytes(input, "memo_hex"),
        contract: vec![call.into_contract()],
        timestamp: number(input, "timestamp_ms"),
        fee_limit: number(input, "fee_limit_sun"),
        ..Raw::default()
    }
}

#[test]
fn tron_vectors() {
    let all = vectors();
    for vector in list(&all["vectors"]) {
        let name = text(vector, "name");
        let (input, expected) = (&vector["input"], &vector["expected"]);
        let raw_bytes = build(vector).encode_to_vec();
        assert_eq!(hex::encode(&raw_bytes), text(expected, "raw_data_hex"), "{name}: bytes");
        assert_eq!(hex::encode(sha256(&raw_bytes)), text(expected, "txID"), "{name}: txID");

        let signature = sign(sha256(&raw_bytes), &secret(input));
        assert_eq!(hex::encode(&signature), text(expected, "signature_v0"), "{name}: signature");

        let tx = SignedTx::decode(&bytes(expected, "signed_transaction_hex")).unwrap();
        assert_eq!(hex::encode(tx.bytes()), text(expected, "signed_transaction_hex"), "{name}: round trip");
        assert_eq!(tx.bandwidth(), number(expected, "bandwidth_bytes"), "{name}: bandwidth");
        let owner = Address::from_base58(text(input, "owner_base58"));
        for key in ["signature_v0", "signature_v27"] {
            assert_eq!(recover(tx.id, &bytes(expected, key)), owner, "{name}: signer by {key}");
        }

        // Through JSON and back, as `broadcasttransaction` does; `visible` changes spelling, not bytes. A memo that is no text
        // cannot be spelt as one.
        let spelt = std::str::from_utf8(&tx.raw.data).is_ok();
        for visible in [false, true].into_iter().filter(|visible| spelt || !visible) {
            let json = Value::from(render::transaction(&tx, visible));
            let back = render::parse_transaction(&json).unwrap();
            assert_eq!((back.id, back.bytes()), (tx.id, tx.bytes()), "{name}: JSON, visible {visible}");
        }
    }
}

#[test]
fn tron_vectors_of_real_nodes_encode_to_the_same_bytes() {
    for capture in list(&vectors()["node_captures"]) {
        let raw_bytes = bytes(capture, "raw_data_hex");
        assert_eq!(hex::encode(sha256(&raw_bytes)), text(capture, "txID"));
        let again = Raw::decode(raw_bytes.as_slice()).unwrap().encode_to_vec();
        assert_eq!(again == raw_bytes, capture["roundtrip_identical"] == true, "{}", text(capture, "source"));
    }
}

#[test]
fn tron_vectors_name_the_id_and_the_signer_of_a_real_block() {
    let vector = &vectors()["block_id_vector"];
    let header = bytes(vector, "header_raw_hex");
    let decoded = BlockHeaderRaw::decode(header.as_slice()).unwrap();
    assert_eq!(decoded.number, number(vector, "number"));
    assert_eq!(decoded.encode_to_vec(), header);
    assert_eq!(hex::encode(block_id(decoded.number, &header)), text(vector, "blockID"));
    let signer = recover(sha256(&header), &bytes(vector, "witness_signature")).unwrap();
    assert_eq!(signer.hex(), text(vector, "recovered_signer_hex"));
}

#[test]
fn tron_vectors_of_keys_give_their_addresses() {
    for derived in list(&vectors()["derivation"]["tron"]) {
        let public = PublicKey::from_secret_key(SECP256K1, &secret(derived));
        let address = Address::from_public_key(&public);
        assert_eq!(hex::encode(public.serialize()), text(derived, "public_key_compressed"));
        assert_eq!(address.base58(), text(derived, "address_base58"));
        assert_eq!(address.hex(), text(derived, "address_hex"));
    }
}

#[test]
fn tron_vectors_of_addresses_are_taken_or_refused() {
    for case in list(&vectors()["address_cases"]) {
        let valid = case["valid_base58_tron"].as_bool().unwrap();
        let input = text(case, "input");
        assert_eq!(Address::from_base58(input).is_some(), valid, "{input:?}: {}", text(case, "reason"));
    }
}
