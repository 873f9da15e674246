//! A network started again on its journal is the network it was.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod common;

use common::{ALICE, ALICE_KEY, BOB, TRX, address, pay, raw, signed};
use tron_devnet::admission::Relay;
use tron_devnet::journal::Journal;
use tron_devnet::ledger::World;
use tron_devnet::network::{Fork, Network, Setup};
use tron_devnet::order::Order;

fn setup() -> Setup {
    let mut world = World::default();
    world.credit(address(ALICE), 1_000 * TRX, 0);
    Setup {
        nodes: 2,
        slot_ms: 3_000,
        solid_lag: 5,
        manual: true,
        genesis_ms: Some(common::GENESIS_MS),
        world,
    }
}

fn balance(network: &Network, of: &str) -> i64 {
    let world = network.chain.state(network.chain.head());
    world.accounts.get(&address(of)).map_or(0, |account| account.balance_sun)
}

fn broadcast(network: &mut Network, sun: i64) {
    let tx = signed(&raw(network, pay(BOB, sun)), ALICE_KEY);
    assert!(network.broadcast(0, tx, Relay::Everyone).is_success());
}

#[test]
fn blocks_forks_and_orders_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.journal");
    let mut network = Journal::open(&path, setup()).unwrap();
    broadcast(&mut network, 7 * TRX);
    network.produce_next();
    network.miss(3);
    broadcast(&mut network, 5 * TRX);
    network.produce_next();
    network.fork(&Fork { depth: 1, include: false, drop: Vec::new(), keep_on: Vec::new() }).unwrap();
    network.produce_next();
    let order = serde_json::from_str(&format!(r#"{{"fund":{{"address":"{BOB}","sun":11}}}}"#)).unwrap();
    let order: Order = order;
    network.order(order).unwrap();
    network.produce_next();
    let was: Vec<_> = network.chain.blocks().iter().map(|block| block.id).collect();
    let (alice, bob) = (balance(&network, ALICE), balance(&network, BOB));
    assert_eq!(bob, 12 * TRX + 11);
    drop(network);

    // A line that was cut short by a crash is as if it had never been.
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"block\":[17");
    std::fs::write(&path, text).unwrap();
    let mut again = Journal::open(&path, setup()).unwrap();
    let now: Vec<_> = again.chain.blocks().iter().map(|block| block.id).collect();
    assert_eq!(now, was);
    assert_eq!((balance(&again, ALICE), balance(&again, BOB)), (alice, bob));
    again.produce_next();
    drop(again);
    assert_eq!(Journal::open(&path, setup()).unwrap().chain.blocks().len(), was.len() + 1);
}

#[test]
fn a_network_of_other_slots_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.journal");
    drop(Journal::open(&path, setup()).unwrap());
    let other = Setup { slot_ms: 500, ..setup() };
    assert!(Journal::open(&path, other).is_err());
}
