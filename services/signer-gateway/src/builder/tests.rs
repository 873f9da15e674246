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

struct Vector {
    name: &'static str,
    key: &'static str,
    owner: &'static str,
    to: &'static str,
    contract: &'static str,
    amount: &'static str,
    ref_block_bytes: &'static str,
    ref_block_hash: &'static str,
    expiration_ms: u64,
    timestamp_ms: u64,
    fee_limit_sun: u64,
    id: &'static str,
    signed: &'static str,
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

fn parameters(sender: &str, reference: (&str, &str), (from, to): (u64, u64), sun: u64) -> Parameters {
    let reference = BlockReference { number_end: bytes(reference.0), hash_middle: bytes(reference.1) };
    let window = Window { reference, expiration_ms: to, made_ms: from };
    Parameters {
        network_id: None,
        binding: Binding::Window { sender: address(sender), window },
        price: Price::FeeLimit { sun },
    }
}

impl Vector {
    fn action(&self) -> Action {
        pay(self.owner, self.to, self.contract, self.amount)
    }

    fn parameters(&self) -> Parameters {
        self.parameters_within((self.timestamp_ms, self.expiration_ms), self.fee_limit_sun)
    }

    fn parameters_within(&self, times_ms: (u64, u64), sun: u64) -> Parameters {
        parameters(self.owner, (self.ref_block_bytes, self.ref_block_hash), times_ms, sun)
    }
}

fn id(unsigned: &Unsigned) -> String {
    match unsigned.slot {
        Slot::Transaction { id, .. } => id.bare(),
        Slot::Nonce(nonce) => panic!("a nonce: {nonce}"),
    }
}

#[test]
fn transactions_are_byte_exact_with_the_reference_implementations() {
    for vector in VECTORS {
        let unsigned = Unsigned::build(address(vector.owner), &vector.action(), &vector.parameters());
        let unsigned = unsigned.expect("built");
        assert_eq!(id(&unsigned), vector.id, "{}", vector.name);
        let key = WalletKey::from_leaf(LeafKey::from_hex(vector.key), &Tron.scheme());
        assert_eq!(key.address(), address(vector.owner));
        let signed = unsigned.sign(&key).expect("signed");
        assert_eq!(hex::encode(&signed.raw), vector.signed, "{}", vector.name);
        assert_eq!(unsigned.charged_bytes, signed.raw.len() as u64 + 64, "{}", vector.name);
        let decoded = Transaction::decode(signed.raw.as_slice()).expect("decodes");
        assert_eq!(TxHash::from(digest(&decoded.raw_data.expect("raw").encode_to_vec())), signed.tx_hash);
    }
}

#[test]
fn what_the_network_would_refuse_or_could_never_undo_is_not_built() {
    let vector = &VECTORS[0];
    let good = vector.parameters();
    let owner = address(vector.owner);
    let try_build = |action: &Action, parameters: Parameters| {
        Tron.build(owner, action, &parameters).map(|_| ()).unwrap_err().to_string()
    };
    let too_much = pay(vector.owner, vector.to, "", "9223372036854775808");
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

const VECTORS: &[Vector] = &[
    Vector {
        name: "trx_transfer_1_trx",
        key: "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954",
        owner: "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
        to: "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C",
        contract: "",
        amount: "1000000",
        ref_block_bytes: "266b",
        ref_block_hash: "f6b6d392f654dc2e",
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_123,
        fee_limit_sun: 0,
        id: "6d290d4b342d64f95741e1e380e32d48cb69262b16d8b18b77b407b686caa6c1",
        signed: "0a85010a02266b2208f6b6d392f654dc2e40d8d9ffbfdd335a67080112630a2d747970652e676f6f676c6561\
             7069732e636f6d2f70726f746f636f6c2e5472616e73666572436f6e747261637412320a1541e2e1a5492652\
             7fbb4e4420de4c6bab82beaee24d1215419705bf55c3dcc6d277ebb8fe2a68762268822ba218c0843d70f385\
             fcbfdd331241fe64a9f2c59082c2d89259916701d67e91e418ac114e28368c346b378706c5894ab1672c92f9\
             9e558d5c15b3598ccd18a215ba1d3fb5808e780fa1d330a57f151b",
    },
    Vector {
        name: "trx_transfer_1_sun_min",
        key: "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954",
        owner: "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
        to: "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC",
        contract: "",
        amount: "1",
        ref_block_bytes: "266b",
        ref_block_hash: "f6b6d392f654dc2e",
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_000,
        fee_limit_sun: 0,
        id: "bf51aec6637a0434ccf9384d8b22fee826175f24df256d209eb057eb4f9c0d5c",
        signed: "0a83010a02266b2208f6b6d392f654dc2e40d8d9ffbfdd335a65080112610a2d747970652e676f6f676c6561\
             7069732e636f6d2f70726f746f636f6c2e5472616e73666572436f6e747261637412300a1541e2e1a5492652\
             7fbb4e4420de4c6bab82beaee24d1215417e5f4552091a69125d5dfcb7b8c2659029395bdf180170f884fcbf\
             dd331241444181e0e046534075e0db4d594901a6731c1d7d336f72cb97c2fde2d53d9b9001fa4c42229e5c64\
             71f4b4ba87dff50a753fab0801be7779ae28ba2c20f38e521b",
    },
    Vector {
        name: "trx_transfer_int64_max_amount",
        key: "9b6ac6a6faf1dc64240f654475a7e668141e4205262367feb7269ef332113929",
        owner: "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C",
        to: "TB7mhtkvfhsRBRhe5FuRa4tFXSEyGDe4eA",
        contract: "",
        amount: "9223372036854775807",
        ref_block_bytes: "0005",
        ref_block_hash: "ffffffffffffffff",
        expiration_ms: 1_777_445_427_000,
        timestamp_ms: 1_777_445_307_001,
        fee_limit_sun: 0,
        id: "f16268c876a6aeb1a6e4dc95b0c5b5eecd515989056ca90561871685b53a696f",
        signed: "0a8b010a0200052208ffffffffffffffff40b8ae83c0dd335a6d080112690a2d747970652e676f6f676c6561\
             7069732e636f6d2f70726f746f636f6c2e5472616e73666572436f6e747261637412380a15419705bf55c3dc\
             c6d277ebb8fe2a68762268822ba21215410c96c0e10bb5e7e7edacf82ad00e3d60790351da18ffffffffffff\
             ffff7f70f984fcbfdd33124125293e3f13a581b33fd24d683b19bf6e3b8c8ca35533e01757d30e6e335ba215\
             25ccf6141c15b1b778268968c4c8e292e66f92be3932676de6248a51082417081b",
    },
    Vector {
        name: "trx_transfer_same_payment_new_timestamp",
        key: "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954",
        owner: "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
        to: "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C",
        contract: "",
        amount: "1000000",
        ref_block_bytes: "266b",
        ref_block_hash: "f6b6d392f654dc2e",
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_124,
        fee_limit_sun: 0,
        id: "75e519ead6d650ac268253cc9139fe1c789b41370d9f48fde1f13d29ff78beb4",
        signed: "0a85010a02266b2208f6b6d392f654dc2e40d8d9ffbfdd335a67080112630a2d747970652e676f6f676c6561\
             7069732e636f6d2f70726f746f636f6c2e5472616e73666572436f6e747261637412320a1541e2e1a5492652\
             7fbb4e4420de4c6bab82beaee24d1215419705bf55c3dcc6d277ebb8fe2a68762268822ba218c0843d70f485\
             fcbfdd3312413c5a46f320ea9fada9fc805b95ed9e9d1522212595dccabb20647c429966efdd01edf7838eef\
             4fbd2978c3c5edef01f3dc0377dccb01a8db179223ebffa191f21b",
    },
    Vector {
        name: "trc20_transfer_1_usdt",
        key: "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954",
        owner: "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
        to: "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C",
        contract: "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t",
        amount: "1000000",
        ref_block_bytes: "266b",
        ref_block_hash: "f6b6d392f654dc2e",
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_123,
        fee_limit_sun: 100_000_000,
        id: "9c2afe997ca0d3f76a9c0b458ca69f2df649c71424b802f32a771de1c413631b",
        signed: "0ad3010a02266b2208f6b6d392f654dc2e40d8d9ffbfdd335aae01081f12a9010a31747970652e676f6f676c\
             65617069732e636f6d2f70726f746f636f6c2e54726967676572536d617274436f6e747261637412740a1541\
             e2e1a54926527fbb4e4420de4c6bab82beaee24d121541a614f803b6fd780986a42c78ec9c7f77e6ded13c22\
             44a9059cbb0000000000000000000000009705bf55c3dcc6d277ebb8fe2a68762268822ba200000000000000\
             000000000000000000000000000000000000000000000f424070f385fcbfdd33900180c2d72f124167f27160\
             5816eafa2ef151075ee8c7030ca15d2b5c39b34754c55bce5f835f3d54b8cd5e2fabd96a02adc866f0050362\
             dd3b448e56a533683f510beecad1e71e1b",
    },
    Vector {
        name: "trc20_transfer_fee_limit_zero_omitted",
        key: "da146374a75310b9666e834ee4ad0866d6f4035967bfc76217c5a495fff9f0d0",
        owner: "TPL66VK2gCXNCD7EJg9pgJRfqcRazjhUZY",
        to: "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6",
        contract: "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t",
        amount: "1",
        ref_block_bytes: "00ff",
        ref_block_hash: "0123456789abcdef",
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_002,
        fee_limit_sun: 0,
        id: "252623e4304990b51d0238090bedfa630acbdbe1c7f10f6dc45bd0157f411ba7",
        signed: "0acd010a0200ff22080123456789abcdef40d8d9ffbfdd335aae01081f12a9010a31747970652e676f6f676c\
             65617069732e636f6d2f70726f746f636f6c2e54726967676572536d617274436f6e747261637412740a1541\
             928c9af0651632157ef27a2cf17ca72c575a4d21121541a614f803b6fd780986a42c78ec9c7f77e6ded13c22\
             44a9059cbb000000000000000000000000e2e1a54926527fbb4e4420de4c6bab82beaee24d00000000000000\
             0000000000000000000000000000000000000000000000000170fa84fcbfdd331241b988a9e656e4787ff7a9\
             9b1bbcaa7de62f9c7d82947caedc5c53924cb64d8f3d7992731f212f28030f7ba0f2cc9b85e4c24fc6d7f902\
             c9afb4cd246be3d031041b",
    },
];

/// The vectors in the file that `TRON_VECTORS` names, or in the one beside the development network's tests.
fn file() -> serde_json::Value {
    // Cargo runs the tests of each crate in the crate's own folder; a relative path means the same file for all of them.
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let default = "tools/tron-devnet/tests/tron_vectors.json";
    let path = root.join(std::env::var("TRON_VECTORS").unwrap_or_else(|_| default.to_owned()));
    serde_json::from_str(&std::fs::read_to_string(path).expect("readable")).expect("json")
}

#[test]
fn tron_vectors() {
    let file = file();
    let list = |value: &serde_json::Value| value.as_array().cloned().expect("a list");
    let text = |value: &serde_json::Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let number = |value: &serde_json::Value, key: &str| match &value[key] {
        serde_json::Value::String(digits) => digits.parse().expect("number"),
        other => other.as_u64().unwrap_or_default(),
    };
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
    for vector in list(&file["vectors"]) {
        let (input, expected) = (&vector["input"], &vector["expected"]);
        // The signer writes no memos.
        if !text(input, "memo_hex").is_empty() {
            continue;
        }
        let (owner, contract) = (text(input, "owner_base58"), text(input, "contract_base58"));
        let amount = if contract.is_empty() { "amount_sun" } else { "token_amount" };
        let action = pay(&owner, &text(input, "to_base58"), &contract, &text(input, amount));
        let parameters = parameters(
            &owner,
            (&text(input, "ref_block_bytes"), &text(input, "ref_block_hash")),
            (number(input, "timestamp_ms"), number(input, "expiration_ms")),
            number(input, "fee_limit_sun"),
        );
        let unsigned = Unsigned::build(address(&owner), &action, &parameters).expect("built");
        assert_eq!(id(&unsigned), text(expected, "txID"));
        let key = WalletKey::from_leaf(LeafKey::from_hex(&text(input, "private_key")), &Tron.scheme());
        let signed = unsigned.sign(&key).expect("signed");
        assert_eq!(hex::encode(&signed.raw), text(expected, "signed_transaction_hex"));
    }
}
