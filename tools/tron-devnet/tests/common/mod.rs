//! What the tests share: keys of public vectors, transactions signed with them, a network by hand.

#![allow(dead_code, reason = "each test program uses its own part of this module")]

use prost::Message;
use secp256k1::SecretKey;
use tron_devnet::crypto::{Address, sign};
use tron_devnet::ledger::World;
use tron_devnet::ledger::token::Token;
use tron_devnet::network::{Network, Setup};
use tron_devnet::wire::{Operation, Raw, SignedTx, TransferContract, TriggerSmartContract};

pub(crate) const ALICE_KEY: &str = "15f0bbb1774be40b7a8d7965d637f324bda2f711fc5726a3dcc19585c6950954";
pub(crate) const ALICE: &str = "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6";
pub(crate) const BOB_KEY: &str = "9b6ac6a6faf1dc64240f654475a7e668141e4205262367feb7269ef332113929";
pub(crate) const BOB: &str = "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C";
pub(crate) const CAROL: &str = "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC";
pub(crate) const USDT: &str = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";
pub(crate) const TRX: i64 = 1_000_000;
pub(crate) const SLOT_MS: i64 = 3_000;
pub(crate) const GENESIS_MS: i64 = 1_777_445_307_000;

pub(crate) fn address(text: &str) -> Address {
    Address::from_base58(text).unwrap()
}

pub(crate) fn key(text: &str) -> SecretKey {
    SecretKey::from_byte_array(hex::decode(text).unwrap().try_into().unwrap()).unwrap()
}

/// A network by hand: Alice owns 1,000 TRX and 1,000 USDT, Bob owns 10 TRX.
pub(crate) fn network(nodes: usize) -> Network {
    let mut world = World::default();
    world.credit(address(ALICE), 1_000 * TRX, 0);
    world.credit(address(BOB), 10 * TRX, 0);
    let mut token = Token::new("USDT", 6);
    token.mint(address(ALICE), alloy_primitives::U256::from(1_000 * TRX));
    world.tokens.insert(address(USDT), token);
    let genesis_ms = Some(GENESIS_MS);
    Network::new(Setup { nodes, slot_ms: SLOT_MS, solid_lag: 5, manual: true, genesis_ms, world })
}

/// A raw transaction that refers to the solid block of node 0 and lives a minute.
pub(crate) fn raw(network: &Network, call: Operation) -> Raw {
    let view = network.nodes[0].view(&network.chain);
    Raw {
        ref_block_bytes: view.solid().id[6..8].to_vec(),
        ref_block_hash: view.solid().id[8..16].to_vec(),
        expiration: view.head().timestamp_ms + 60_000,
        contract: vec![call.into_contract()],
        timestamp: view.head().timestamp_ms,
        ..Raw::default()
    }
}

pub(crate) fn signed(raw: &Raw, key_hex: &str) -> SignedTx {
    let unsigned = SignedTx::from_parts(raw.encode_to_vec(), Vec::new()).unwrap();
    let signature = sign(unsigned.id, &key(key_hex));
    SignedTx { signatures: vec![signature], ..unsigned }
}

pub(crate) fn pay(to: &str, sun: i64) -> Operation {
    Operation::Transfer(TransferContract {
        owner_address: address(ALICE).as_bytes().to_vec(),
        to_address: address(to).as_bytes().to_vec(),
        amount: sun,
    })
}

pub(crate) fn pay_token(to: &str, amount: u64) -> Operation {
    let mut data = hex::decode("a9059cbb").unwrap();
    data.extend([0; 12]);
    data.extend(address(to).body());
    data.extend(alloy_primitives::U256::from(amount).to_be_bytes::<32>());
    Operation::Trigger(TriggerSmartContract {
        owner_address: address(ALICE).as_bytes().to_vec(),
        contract_address: address(USDT).as_bytes().to_vec(),
        data,
        ..TriggerSmartContract::default()
    })
}
