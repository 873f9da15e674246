//! The registry, and TRON vectors on which java-tron's protobufs, tronweb and tronpy agree. The keys are public test keys.

use std::collections::HashSet;

use payment::{AssetRef, BlockReference, Transfer, Window};
use prost::Message;

use super::tron::{MAX_FEE_LIMIT_SUN, MAX_LIFETIME_MS, Raw, Tron, digest};
use super::*;
use crate::keys::{LeafKey, WalletKey};

#[test]
fn every_family_has_a_coin_and_fields_of_its_own() {
    let coins: HashSet<u32> = families().map(|family| family.scheme().coin).collect();
    let fields: HashSet<&str> =
        families().flat_map(Family::fields).filter_map(|field| field.rsplit('.').next()).collect();
    assert_eq!((coins.len(), fields.len()), (FORMATS.len(), 11));
}

/// As the network reads it.
#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, optional, tag = "1")]
    raw_data: Option<Raw>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    signature: Vec<Vec<u8>>,
}

/// A transaction with the bytes that the reference implementations make of it.
struct Vector {
    name: String,
    key: String,
    owner: String,
    to: String,
    /// Empty for TRX.
    contract: String,
    amount: String,
    reference: (String, String),
    expiration_ms: u64,
    timestamp_ms: u64,
    fee_limit_sun: u64,
    id: String,
    signed: String,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    match &value[key] {
        Value::String(digits) => digits.parse().expect("number"),
        other => other.as_u64().unwrap_or_default(),
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().expect("a list")
}

impl Vector {
    fn read(vector: &Value) -> Self {
        let (input, expected) = (&vector["input"], &vector["expected"]);
        let contract = text(input, "contract_base58");
        let amount = if contract.is_empty() { "amount_sun" } else { "token_amount" };
        Self {
            name: text(vector, "name"),
            key: text(input, "private_key"),
            owner: text(input, "owner_base58"),
            to: text(input, "to_base58"),
            amount: text(input, amount),
            contract,
            reference: (text(input, "ref_block_bytes"), text(input, "ref_block_hash")),
            expiration_ms: number(input, "expiration_ms"),
            timestamp_ms: number(input, "timestamp_ms"),
            fee_limit_sun: number(input, "fee_limit_sun"),
            id: text(expected, "txID"),
            signed: text(expected, "signed_transaction_hex"),
        }
    }

    fn action(&self) -> Action {
        pay(&self.owner, &self.to, &self.contract, &self.amount)
    }

    fn parameters(&self) -> Parameters {
        self.parameters_within((self.timestamp_ms, self.expiration_ms), self.fee_limit_sun)
    }

    fn parameters_within(&self, (made_ms, expiration_ms): (u64, u64), sun: u64) -> Parameters {
        let (number_end, hash_middle) = (bytes(&self.reference.0), bytes(&self.reference.1));
        let reference = BlockReference { number_end, hash_middle };
        let window = Window { reference, expiration_ms, made_ms };
        let binding = Binding::Window { sender: address(&self.owner), window };
        Parameters { network_id: None, binding, price: Price::FeeLimit { sun } }
    }
}

/// Those without a memo, which the signer never writes.
fn vectors() -> Vec<Vector> {
    let all = list(&file()["vectors"]);
    all.iter().filter(|vector| text(&vector["input"], "memo_hex").is_empty()).map(Vector::read).collect()
}

fn address(text: &str) -> Address {
    Address::parse(AddressFormat::Tron, text).expect("address")
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    hex::decode(text).expect("hex").try_into().expect("length")
}

fn pay(from: &str, to: &str, contract: &str, amount: &str) -> Action {
    let asset = match contract {
        "" => AssetRef::Native,
        contract => AssetRef::Token(address(contract)),
    };
    let amount = amount.parse().expect("amount");
    Action::Pay(Transfer { asset, from: address(from), to: address(to), amount })
}

fn id(unsigned: &Unsigned) -> String {
    match unsigned.slot {
        Slot::Transaction { id, .. } => id.bare(),
        Slot::Nonce(nonce) => panic!("a nonce: {nonce}"),
    }
}

#[test]
fn transactions_are_byte_exact_with_the_reference_implementations() {
    let vectors = vectors();
    assert!(vectors.len() >= 6);
    for vector in &vectors {
        let unsigned = Unsigned::build(address(&vector.owner), &vector.action(), &vector.parameters());
        let unsigned = unsigned.expect("built");
        assert_eq!(id(&unsigned), vector.id, "{}", vector.name);
        let key = WalletKey::from_leaf(LeafKey::from_hex(&vector.key), &Tron.scheme());
        assert_eq!(key.address(), address(&vector.owner));
        let signed = unsigned.sign(&key).expect("signed");
        assert_eq!(hex::encode(&signed.raw), vector.signed, "{}", vector.name);
        assert_eq!(unsigned.charged_bytes, signed.raw.len() as u64 + 64, "{}", vector.name);
        let decoded = Transaction::decode(signed.raw.as_slice()).expect("decodes");
        assert_eq!(TxHash::from(digest(&decoded.raw_data.expect("raw").encode_to_vec())), signed.tx_hash);
    }
}

#[test]
fn what_the_network_would_refuse_or_could_never_undo_is_not_built() {
    let vector = &vectors()[0];
    let good = vector.parameters();
    let owner = address(&vector.owner);
    let try_build = |action: &Action, parameters: Parameters| {
        Tron.build(owner, action, &parameters).map(|_| ()).unwrap_err().to_string()
    };
    let too_much = pay(&vector.owner, &vector.to, "", "9223372036854775808");
    assert_eq!(try_build(&too_much, good), "amount does not fit 63 bits");
    assert_eq!(try_build(&Action::Cancel { sender: owner }, good), "this chain has no cancellations");
    let made_ms = vector.timestamp_ms;
    for expiration_ms in [made_ms, made_ms + MAX_LIFETIME_MS + 1, u64::MIN, u64::MAX] {
        let parameters = vector.parameters_within((made_ms, expiration_ms), 0);
        assert!(try_build(&vector.action(), parameters).starts_with("expiration_ms"));
    }
    let parameters = vector.parameters_within((u64::MAX - 1, u64::MAX), 0);
    assert!(try_build(&vector.action(), parameters).starts_with("expiration_ms"));
    for fee_limit_sun in [MAX_FEE_LIMIT_SUN + 1, u64::MAX] {
        let parameters = vector.parameters_within((made_ms, vector.expiration_ms), fee_limit_sun);
        assert!(try_build(&vector.action(), parameters).starts_with("fee_limit_sun"));
    }
    let evm = Address::from_body(AddressFormat::Evm, [7; 20]);
    let transfer = Transfer { asset: AssetRef::Native, from: owner, to: evm, amount: 1u64.into() };
    assert_eq!(try_build(&Action::Pay(transfer), good), "to is not of this chain's kind");
}

/// The vectors in the file that `TRON_VECTORS` names, or in the file of the development network's tests.
fn file() -> Value {
    // Cargo runs the tests of each crate in the crate's own folder; a relative path means the same file for all of them.
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let default = "tools/tron-devnet/tests/tron_vectors.json";
    let path = root.join(std::env::var("TRON_VECTORS").unwrap_or_else(|_| default.to_owned()));
    serde_json::from_str(&std::fs::read_to_string(path).expect("readable")).expect("json")
}

#[test]
fn tron_vectors() {
    let file = file();
    let seed = crate::keys::seed_from_phrase(&text(&file["meta"], "mnemonic"), "").expect("phrase");
    let families = [(AddressFormat::Tron, "tron", "address_base58"), (AddressFormat::Evm, "evm", "address")];
    for (format, chain, address) in families {
        let scheme = family(format).scheme();
        for derived in list(&file["derivation"][chain]) {
            let path = text(&derived, "path");
            let index: u32 = path.rsplit('/').next().and_then(|last| last.parse().ok()).expect("index");
            assert_eq!(scheme.path(index), path);
            let leaf = seed.branch(scheme.coin).expect("branch").leaf(index).expect("leaf");
            let expected = LeafKey::from_hex(&text(&derived, "private_key"));
            let found = scheme.address_of(&leaf).expect("address");
            assert_eq!(found, scheme.address_of(&expected).expect("address"));
            assert_eq!(found.to_string(), text(&derived, address));
        }
    }
}
