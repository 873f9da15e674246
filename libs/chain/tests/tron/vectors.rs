//! Bytes on which java-tron's own protobufs, tronweb and tronpy agree. `TRON_VECTORS` may name another file of the same
//! shape; without it, the one beside the devnet's tests is read.

use chain::Plan;
use chain::tron::message::{BlockHeaderRaw, Raw, bandwidth, block_id, block_reference, tx_id};
use chain::tron::{SignedTx, UnsignedTx};
use payment::{Action, AssetRef, Binding, Price, Transfer, Window};
use prost::Message as _;
use serde_json::Value;
use types::{Address, AddressFormat, TxHash};

use super::kit::{sign_with, tron};

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

fn number(value: &Value, key: &str) -> u64 {
    match &value[key] {
        Value::Number(number) => number.as_u64().unwrap(),
        Value::String(digits) => digits.parse().unwrap(),
        _ => 0,
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value[key].as_array().unwrap();
    assert!(!list.is_empty(), "{key} is empty");
    list
}

fn plan(vector: &Value) -> Plan {
    let input = &vector["input"];
    let (from, to) = (tron(text(input, "owner_base58")), tron(text(input, "to_base58")));
    let (asset, amount) = match text(vector, "kind") {
        "TransferContract" => (AssetRef::Native, text(input, "amount_sun")),
        "TriggerSmartContract" => {
            (AssetRef::Token(tron(text(input, "contract_base58"))), text(input, "token_amount"))
        }
        other => panic!("unknown kind {other}"),
    };
    let hash: TxHash = text(input, "ref_block_id").parse().unwrap();
    let transfer = Transfer { asset, from, to, amount: amount.parse().unwrap() };
    Plan {
        action: Action::Pay(transfer),
        binding: Binding::Window {
            sender: from,
            window: Window {
                reference: block_reference(&hash),
                expiration_ms: number(input, "expiration_ms"),
                made_ms: number(input, "timestamp_ms"),
            },
        },
        price: Price::FeeLimit { sun: number(input, "fee_limit_sun") },
    }
}

/// Bursar writes no memos; those of the vectors are put into the same message.
fn raw_of(unsigned: &UnsignedTx, memo: &str) -> Vec<u8> {
    let mut raw = Raw::decode(unsigned.raw().unwrap().as_slice()).unwrap();
    raw.data = hex::decode(memo).unwrap();
    raw.encode_to_vec()
}

#[test]
fn tron_vectors() {
    let all = vectors();
    for vector in list(&all, "vectors") {
        let (name, input, expected) = (text(vector, "name"), &vector["input"], &vector["expected"]);
        let plan = plan(vector);
        let unsigned = UnsignedTx::of(&plan).unwrap();
        let raw = raw_of(&unsigned, text(input, "memo_hex"));
        assert_eq!(hex::encode(&raw), text(expected, "raw_data_hex"), "{name}: bytes");
        assert_eq!(tx_id(&raw).bare(), text(expected, "txID"), "{name}: id");
        assert_eq!(bandwidth(&raw), number(expected, "bandwidth_bytes"), "{name}: bandwidth");
        let block: TxHash = text(input, "ref_block_id").parse().unwrap();
        let reference = block_reference(&block);
        assert_eq!(hex::encode(reference.number_end), text(input, "ref_block_bytes"), "{name}: reference");
        assert_eq!(hex::encode(reference.hash_middle), text(input, "ref_block_hash"), "{name}: reference");

        let signed = sign_with(&raw, text(input, "private_key"));
        assert_eq!(hex::encode(&signed), text(expected, "signed_transaction_hex"), "{name}: signed");
        let decoded = SignedTx::decode(&signed).unwrap();
        assert_eq!(decoded.sender, tron(text(input, "owner_base58")), "{name}: signer");
        let as_planned = decoded.matches(&unsigned);
        if text(input, "memo_hex").is_empty() {
            assert_eq!(as_planned, Ok(()), "{name}: as planned");
        } else {
            assert!(as_planned.is_err(), "{name}: a memo was never asked for");
        }
    }
    for capture in list(&all, "node_captures") {
        let raw = hex::decode(text(capture, "raw_data_hex")).unwrap();
        assert_eq!(tx_id(&raw).bare(), text(capture, "txID"));
        let again = Raw::decode(raw.as_slice()).unwrap().encode_to_vec();
        assert_eq!(again == raw, capture["roundtrip_identical"] == true, "{}", text(capture, "source"));
    }
    let block = &all["block_id_vector"];
    let header = hex::decode(text(block, "header_raw_hex")).unwrap();
    let header_raw = BlockHeaderRaw::decode(header.as_slice()).unwrap();
    assert_eq!(header_raw.encode_to_vec(), header);
    assert_eq!(u64::try_from(header_raw.number), Ok(number(block, "number")));
    assert_eq!(hex::encode(&header_raw.witness_address), text(block, "witness_address_hex"));
    assert_eq!(block_id(&header_raw).bare(), text(block, "blockID"));
    for case in list(&all, "address_cases") {
        let valid = case["valid_base58_tron"].as_bool().unwrap();
        let read = Address::parse(AddressFormat::Tron, text(case, "input"));
        assert_eq!(read.is_ok(), valid, "{:?}: {}", text(case, "input"), text(case, "reason"));
        if let Err(error) = read {
            assert!(!error.to_string().is_empty(), "a refusal says why");
        }
    }
    for derived in list(&all["derivation"], "tron") {
        let address = tron(text(derived, "address_base58"));
        assert_eq!(address.tron_hex(), text(derived, "address_hex"));
    }
}

#[test]
fn what_was_not_asked_for_is_named() {
    let all = vectors();
    let good = plan(&list(&all, "vectors")[0]);
    let unsigned = UnsignedTx::of(&good).unwrap();
    let signed = |unsigned: &UnsignedTx| {
        let key = text(&list(&all, "vectors")[0]["input"], "private_key").to_owned();
        SignedTx::decode(&sign_with(&unsigned.raw().unwrap(), &key)).unwrap()
    };
    let mut other = unsigned.clone();
    other.transfer.amount = 2u64.into();
    assert!(signed(&other).matches(&unsigned).unwrap_err().to_string().contains("call"));
    let mut other = unsigned.clone();
    other.window.expiration_ms += 1;
    assert!(signed(&other).matches(&unsigned).unwrap_err().to_string().contains("expiration"));
    let mut other = unsigned.clone();
    other.window.made_ms += 1;
    assert!(signed(&other).matches(&unsigned).unwrap_err().to_string().contains("time"));
    let mut other = unsigned.clone();
    other.fee_limit_sun = 7;
    assert!(signed(&other).matches(&unsigned).unwrap_err().to_string().contains("fee limit"));
    let mut bytes = sign_with(&unsigned.raw().unwrap(), super::kit::KEY);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let flipped = SignedTx::decode(&bytes).map(|tx| tx.matches(&unsigned).is_ok());
    assert_ne!(flipped, Ok(true), "another signer");
    bytes.push(0);
    assert!(SignedTx::decode(&bytes).is_err());
}
