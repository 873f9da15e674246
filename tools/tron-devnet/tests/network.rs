//! The network by hand: checks and their order, fees, forks, expiry, pools, the oracle.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod common;

use common::{ALICE, ALICE_KEY, BOB, BOB_KEY, CAROL, SLOT_MS, TRX, USDT, address, network, pay, pay_token};
use common::{raw, signed};
use tron_devnet::admission::Relay;
use tron_devnet::chain::Included;
use tron_devnet::ledger::execute::ContractResult;
use tron_devnet::ledger::token::Behaviour;
use tron_devnet::network::{Fork, Network};
use tron_devnet::node::NodeChange;
use tron_devnet::oracle::{PaymentFilter, payments};
use tron_devnet::wire::{Operation, Raw, SignedTx};

fn send(network: &mut Network, node: usize, tx: &SignedTx) -> &'static str {
    network.broadcast(node, tx.clone(), Relay::Everyone).code
}

fn balance(network: &Network, of: &str) -> i64 {
    let world = network.chain.state(network.chain.head());
    world.accounts.get(&address(of)).map_or(0, |account| account.balance_sun)
}

fn paid(network: &Network, to: &str) -> u64 {
    let question = PaymentFilter { to: Some(to.to_owned()), ..PaymentFilter::default() };
    payments(&network.chain, &question).unwrap()["count"].as_u64().unwrap()
}

fn mined<'a>(network: &'a Network, tx: &SignedTx) -> Option<&'a Included> {
    network.nodes[0].view(&network.chain).find(&tx.id, false).map(|(_, included)| included)
}

fn fork(depth: u64) -> Fork {
    Fork { depth, include: false, drop: Vec::new(), keep_on: Vec::new() }
}

fn change(network: &mut Network, change: NodeChange) {
    let Network { nodes, chain, .. } = network;
    nodes[change.node].change(&change, chain);
}

#[test]
fn the_first_broken_rule_in_order_names_the_answer() {
    let mut network = network(1);
    let head_ms = network.chain.head().timestamp_ms;
    let good = raw(&network, pay(BOB, TRX));
    // Each step repairs what the one before was refused for.
    let mut bad = Raw {
        expiration: head_ms,
        ref_block_hash: vec![0; 8],
        data: vec![0; 600_000],
        contract: Vec::new(),
        ..good.clone()
    };
    change(&mut network, NodeChange { busy: Some(true), connected: Some(false), ..NodeChange::default() });
    assert_eq!(send(&mut network, 0, &signed(&bad, BOB_KEY)), "SERVER_BUSY");
    change(&mut network, NodeChange { busy: Some(false), ..NodeChange::default() });
    assert_eq!(send(&mut network, 0, &signed(&bad, BOB_KEY)), "NO_CONNECTION");
    change(&mut network, NodeChange { connected: Some(true), ..NodeChange::default() });
    assert_eq!(send(&mut network, 0, &signed(&bad, BOB_KEY)), "CONTRACT_VALIDATE_ERROR");
    bad.contract = vec![pay(BOB, 2_000 * TRX).into_contract()];
    assert_eq!(send(&mut network, 0, &signed(&bad, BOB_KEY)), "TRANSACTION_EXPIRATION_ERROR");
    bad.expiration = head_ms + 2 * 86_400_000;
    assert_eq!(send(&mut network, 0, &signed(&bad, BOB_KEY)), "SIGERROR");
    assert_eq!(send(&mut network, 0, &signed(&bad, ALICE_KEY)), "TAPOS_ERROR");
    bad.ref_block_hash.clone_from(&good.ref_block_hash);
    assert_eq!(send(&mut network, 0, &signed(&bad, ALICE_KEY)), "TOO_BIG_TRANSACTION_ERROR");
    bad.data = Vec::new();
    assert_eq!(send(&mut network, 0, &signed(&bad, ALICE_KEY)), "TRANSACTION_EXPIRATION_ERROR");
    bad.expiration = good.expiration;
    assert_eq!(send(&mut network, 0, &signed(&bad, ALICE_KEY)), "CONTRACT_VALIDATE_ERROR");
    let good = signed(&good, ALICE_KEY);
    assert_eq!(send(&mut network, 0, &good), "SUCCESS");
    assert_eq!(send(&mut network, 0, &good), "DUP_TRANSACTION_ERROR");
    network.produce_next();
    assert_eq!(send(&mut network, 0, &good), "DUP_TRANSACTION_ERROR");
    // Mined long ago and resent after its time: the expiration is seen before the duplicate.
    network.miss(30);
    network.produce_next();
    assert_eq!(send(&mut network, 0, &good), "TRANSACTION_EXPIRATION_ERROR");
    assert_eq!(paid(&network, BOB), 1);
}

#[test]
fn blocks_name_their_parents_and_solid_follows_the_head() {
    let mut network = network(1);
    network.produce_next();
    network.miss(4);
    network.produce_next();
    let blocks = network.chain.blocks();
    for pair in blocks.windows(2) {
        assert_eq!(pair[1].parent, pair[0].id);
        assert_eq!(pair[1].number.to_be_bytes(), pair[1].id[..8]);
    }
    let [.., before, after] = blocks else { panic!("there are blocks") };
    assert_eq!(after.timestamp_ms - before.timestamp_ms, 5 * SLOT_MS);
    assert_eq!(network.chain.solid(), network.chain.head().number - 5);
}

#[test]
fn a_transfer_uses_free_bandwidth_then_pays_by_the_byte() {
    let mut network = network(1);
    let mut fees = Vec::new();
    for sun in 1..=3 {
        let tx = signed(&raw(&network, pay(BOB, sun)), ALICE_KEY);
        assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
        network.produce_next();
        fees.push(mined(&network, &tx).unwrap().outcome.fee_sun);
    }
    assert_eq!(fees[..2], [0, 0]);
    assert!((260_000..=267_000).contains(&fees[2]), "{fees:?}");
}

#[test]
fn a_new_account_costs_the_activation_and_its_bandwidth() {
    let mut network = network(1);
    let tx = signed(&raw(&network, pay(CAROL, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.produce_next();
    assert_eq!(mined(&network, &tx).unwrap().outcome.fee_sun, 1_100_000);
    assert_eq!(balance(&network, CAROL), TRX);
    assert_eq!(balance(&network, ALICE), 1_000 * TRX - TRX - 1_100_000);
}

#[test]
fn a_transfer_beyond_the_balance_never_enters_a_block() {
    let mut network = network(1);
    let tx = signed(&raw(&network, pay(BOB, 1_001 * TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "CONTRACT_VALIDATE_ERROR");
    // Two spends of one balance collide in the pool already.
    let first = signed(&raw(&network, pay(BOB, 600 * TRX)), ALICE_KEY);
    let second = signed(&raw(&network, pay(BOB, 601 * TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &first), "SUCCESS");
    assert_eq!(send(&mut network, 0, &second), "CONTRACT_VALIDATE_ERROR");
}

fn call(network: &mut Network, call: Operation, fee_limit: i64) -> SignedTx {
    let raw = Raw { fee_limit, ..raw(network, call) };
    let tx = signed(&raw, ALICE_KEY);
    assert_eq!(send(network, 0, &tx), "SUCCESS");
    network.produce_next();
    tx
}

#[test]
fn a_token_transfer_costs_energy_and_leaves_a_log() {
    let mut network = network(1);
    let tx = call(&mut network, pay_token(BOB, 7), 100 * TRX);
    let first = mined(&network, &tx).unwrap().outcome.clone();
    assert_eq!((first.ending, first.energy.total, first.logs.len()), (ContractResult::Success, 130_285, 1));
    assert_eq!(first.energy.fee_sun, 13_028_500);
    let tx = call(&mut network, pay_token(BOB, 7), 100 * TRX);
    assert_eq!(mined(&network, &tx).unwrap().outcome.energy.total, 64_285);
    assert_eq!(paid(&network, BOB), 2);
}

#[test]
fn staked_resources_are_used_before_money_and_a_memo_has_its_own_fee() {
    let mut network = network(1);
    network.amend(|world| {
        let account = world.accounts.get_mut(&address(ALICE)).unwrap();
        (account.bandwidth_limit, account.energy_limit) = (10_000, 130_000);
    });
    let tx = call(&mut network, pay_token(BOB, 7), 100 * TRX);
    let outcome = mined(&network, &tx).unwrap().outcome.clone();
    assert_eq!((outcome.energy.usage, outcome.energy.fee_sun), (130_000, 28_500));
    assert_eq!((outcome.bandwidth.fee_sun, outcome.fee_sun), (0, 28_500));
    let raw = Raw { data: b"memo".to_vec(), ..raw(&network, pay(BOB, TRX)) };
    let tx = signed(&raw, ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.produce_next();
    assert_eq!(mined(&network, &tx).unwrap().outcome.fee_sun, TRX);
}

#[test]
fn who_cannot_pay_for_bandwidth_is_refused() {
    let mut network = network(1);
    network.prices.free_bandwidth = 0;
    network.prices.bandwidth_fee_sun = 10 * TRX;
    let tx = signed(&raw(&network, pay(BOB, 1)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "BANDWITH_ERROR");
}

#[test]
fn a_call_may_be_included_and_fail_and_still_cost_its_fee() {
    let mut network = network(1);
    let tx = call(&mut network, pay_token(BOB, 7), TRX);
    let outcome = mined(&network, &tx).unwrap().outcome.clone();
    assert_eq!((outcome.ending, outcome.energy.total), (ContractResult::OutOfEnergy, 10_000));
    assert!(outcome.logs.is_empty() && outcome.fee_sun >= TRX);
    let tx = call(&mut network, pay_token(BOB, 2_000_000_000), 100 * TRX);
    assert_eq!(mined(&network, &tx).unwrap().outcome.ending, ContractResult::Revert);
    assert_eq!(paid(&network, BOB), 0);
}

#[test]
fn each_behaviour_of_a_token_does_what_it_says() {
    // (behaviour, ending, logs, moved, returned true)
    let table = [
        (Behaviour::Normal, ContractResult::Success, 1, 1, true),
        (Behaviour::Revert, ContractResult::Revert, 0, 0, false),
        (Behaviour::ReturnsFalse, ContractResult::Success, 0, 0, false),
        (Behaviour::NoLog, ContractResult::Success, 0, 0, true),
        (Behaviour::MovesWithoutLog, ContractResult::Success, 0, 1, true),
        (Behaviour::PaysReturningFalse, ContractResult::Success, 1, 1, false),
        (Behaviour::OutOfEnergy, ContractResult::OutOfEnergy, 0, 0, false),
    ];
    for (behaviour, ending, logs, moved, returned) in table {
        let mut network = network(1);
        network.amend(|world| {
            let token = world.tokens.get_mut(&address(USDT)).unwrap();
            token.towards.insert(address(BOB), behaviour);
        });
        let tx = call(&mut network, pay_token(BOB, 7), 100 * TRX);
        let outcome = mined(&network, &tx).unwrap().outcome.clone();
        assert_eq!((outcome.ending, outcome.logs.len()), (ending, logs), "{behaviour:?}");
        assert_eq!(paid(&network, BOB), moved, "{behaviour:?}");
        let one = ending == ContractResult::Success && outcome.output.last() == Some(&1);
        assert_eq!(one, returned, "{behaviour:?}");
    }
}

#[test]
fn after_missed_slots_a_block_may_be_later_than_the_expiration_of_what_it_holds() {
    let mut network = network(1);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.miss(40);
    network.produce_next();
    assert!(mined(&network, &tx).is_some());
    assert!(network.chain.head().timestamp_ms > tx.raw.expiration);
}

#[test]
fn what_waits_past_its_expiration_is_dropped_without_a_word() {
    let mut network = network(1);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.include = false;
    for _ in 0..21 {
        network.produce_next();
    }
    network.include = true;
    network.produce_next();
    assert_eq!(paid(&network, BOB), 0);
    assert!(network.nodes[0].pool.is_empty() && network.pool.is_empty());
}

#[test]
fn a_fork_undoes_and_the_transaction_returns_at_another_height() {
    let mut network = network(1);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.produce_next();
    let (height, old_id) = (network.chain.height_of(&tx.id), network.chain.head().id);
    network.fork(&fork(2)).unwrap();
    assert_eq!(network.chain.height_of(&tx.id), None);
    assert_eq!((paid(&network, BOB), balance(&network, ALICE)), (0, 1_000 * TRX));
    assert!(network.nodes[0].pooled(&tx.id).is_some());
    assert_ne!(network.chain.block(height.unwrap()).unwrap().id, old_id);
    network.produce_next();
    assert!(network.chain.height_of(&tx.id) > height);
    assert_eq!(paid(&network, BOB), 1);
    assert!(network.fork(&fork(6)).is_err(), "a solid block may not be undone");
}

#[test]
fn a_fork_may_lose_a_transaction_while_one_node_still_shows_it_mined() {
    let mut network = network(2);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.produce_next();
    network.fork(&Fork { drop: vec![hex::encode(tx.id)], keep_on: vec![1], ..fork(1) }).unwrap();
    network.produce_next();
    assert_eq!(paid(&network, BOB), 0);
    let shows = |network: &Network, node: usize| {
        network.nodes[node].view(&network.chain).find(&tx.id, false).is_some()
    };
    assert!(!shows(&network, 0) && shows(&network, 1));
    change(&mut network, NodeChange { node: 1, branch: Some(false), ..NodeChange::default() });
    assert!(!shows(&network, 1));
}

#[test]
fn a_reference_to_an_orphaned_block_is_refused() {
    let mut network = network(1);
    network.produce_next();
    let head = network.chain.head().clone();
    let raw = Raw {
        ref_block_bytes: head.id[6..8].to_vec(),
        ref_block_hash: head.id[8..16].to_vec(),
        ..raw(&network, pay(BOB, TRX))
    };
    network.fork(&fork(1)).unwrap();
    assert_eq!(send(&mut network, 0, &signed(&raw, ALICE_KEY)), "TAPOS_ERROR");
}

#[test]
fn a_node_may_drop_what_its_peer_mines() {
    let mut network = network(2);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    assert!(network.nodes[1].pooled(&tx.id).is_some(), "peers hear of it");
    network.drop_pending(&tx.id, Some(0));
    assert!(network.nodes[0].pooled(&tx.id).is_none());
    // Sent again, it must not be mined twice.
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.produce_next();
    network.produce_next();
    assert_eq!(paid(&network, BOB), 1);
}

#[test]
fn a_lost_acceptance_is_never_mined_and_a_resend_elsewhere_heals_it() {
    let mut network = network(2);
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert!(network.broadcast(0, tx.clone(), Relay::Nobody).is_success());
    network.produce_next();
    assert_eq!(paid(&network, BOB), 0);
    assert!(network.nodes[0].pooled(&tx.id).is_some(), "this node still shows it as pending");
    assert_eq!(send(&mut network, 0, &tx), "DUP_TRANSACTION_ERROR");
    assert_eq!(send(&mut network, 1, &tx), "SUCCESS");
    network.produce_next();
    assert_eq!(paid(&network, BOB), 1);
}

#[test]
fn a_seen_cache_calls_a_forgotten_transaction_a_duplicate() {
    let mut network = network(1);
    change(&mut network, NodeChange { seen_cache: Some(true), ..NodeChange::default() });
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    network.drop_pending(&tx.id, None);
    assert_eq!(send(&mut network, 0, &tx), "DUP_TRANSACTION_ERROR");
    network.produce_next();
    assert_eq!(paid(&network, BOB), 0);
}

#[test]
fn a_seen_cache_is_asked_first_and_calls_even_refused_bytes_a_duplicate() {
    let mut network = network(2);
    change(&mut network, NodeChange { seen_cache: Some(true), ..NodeChange::default() });
    let orphan = Raw { ref_block_hash: vec![0; 8], ..raw(&network, pay(BOB, TRX)) };
    let orphan = signed(&orphan, ALICE_KEY);
    assert_eq!(send(&mut network, 0, &orphan), "TAPOS_ERROR");
    assert_eq!(send(&mut network, 0, &orphan), "DUP_TRANSACTION_ERROR");
    assert_eq!(send(&mut network, 1, &orphan), "TAPOS_ERROR");
    let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
    assert_eq!(send(&mut network, 0, &tx), "SUCCESS");
    // Long expired: a node without the cache sees the expiration first.
    network.miss(30);
    network.produce_next();
    network.produce_next();
    assert_eq!(send(&mut network, 0, &tx), "DUP_TRANSACTION_ERROR");
    assert_eq!(send(&mut network, 1, &tx), "TRANSACTION_EXPIRATION_ERROR");
    // After an hour it is forgotten.
    network.miss(1_200);
    network.produce_next();
    assert_eq!(send(&mut network, 0, &tx), "TRANSACTION_EXPIRATION_ERROR");
    assert_eq!(paid(&network, BOB), 1);
}

#[test]
fn a_lagging_node_never_goes_back_and_knows_no_newer_reference() {
    let mut network = network(2);
    change(&mut network, NodeChange { node: 1, lag: Some(3), ..NodeChange::default() });
    let before = network.nodes[1].view(&network.chain).head().number;
    assert_eq!(before, network.chain.head().number);
    network.produce_next();
    assert_eq!(network.nodes[1].view(&network.chain).head().number, before);
    for _ in 0..5 {
        network.produce_next();
    }
    assert_eq!(network.nodes[1].view(&network.chain).head().number, network.chain.head().number - 3);
    let head = network.chain.head().clone();
    let raw = Raw {
        ref_block_bytes: head.id[6..8].to_vec(),
        ref_block_hash: head.id[8..16].to_vec(),
        ..raw(&network, pay(BOB, TRX))
    };
    assert_eq!(send(&mut network, 1, &signed(&raw, ALICE_KEY)), "TAPOS_ERROR");
    assert_eq!(send(&mut network, 0, &signed(&raw, ALICE_KEY)), "SUCCESS");
}

#[test]
fn two_runs_give_the_same_blocks() {
    let run = || {
        let mut network = network(1);
        let tx = signed(&raw(&network, pay(BOB, TRX)), ALICE_KEY);
        send(&mut network, 0, &tx);
        network.produce_next();
        network.chain.head().id
    };
    assert_eq!(run(), run());
}
