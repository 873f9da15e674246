//! Random schedules of payments, resends, forks, drops, lags and missed slots: money is neither made nor
//! lost, and no transaction is mined twice. The seed is printed with every failure.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

mod common;

use std::collections::HashSet;

use common::{ALICE, ALICE_KEY, BOB, CAROL, TRX, USDT, address, network, pay, pay_token, raw, signed};
use tron_devnet::admission::Relay;
use tron_devnet::network::{Fork, Network};
use tron_devnet::node::NodeChange;
use tron_devnet::wire::{Raw, SignedTx};

/// A small generator, so that a seed alone repeats a run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.below(3)).unwrap()
    }
}

fn step(network: &mut Network, sent: &mut Vec<SignedTx>, dice: &mut Dice) {
    let relay = match dice.below(6) {
        0 => Relay::Nobody,
        1 => Relay::Forget,
        _ => Relay::Everyone,
    };
    match dice.below(12) {
        0..=3 => {
            let to = if dice.below(2) == 0 { BOB } else { CAROL };
            let amount = dice.below(30 * TRX.unsigned_abs()) + 1;
            let call = if dice.below(2) == 0 {
                pay(to, i64::try_from(amount).unwrap())
            } else {
                pay_token(to, amount)
            };
            let raw = Raw { fee_limit: 20 * TRX, ..raw(network, call) };
            let tx = signed(&raw, ALICE_KEY);
            network.broadcast(dice.node(), tx.clone(), relay);
            sent.push(tx);
        }
        4..=5 if !sent.is_empty() => {
            let which = usize::try_from(dice.below(sent.len() as u64)).unwrap();
            network.broadcast(dice.node(), sent[which].clone(), Relay::Everyone);
        }
        6 => {
            let drop = sent.last().map(|tx| hex::encode(tx.id)).into_iter().collect();
            let (depth, include) = (dice.below(5) + 1, dice.below(2) == 0);
            // A fork that reaches a solid block is refused, which is an outcome as good as any.
            let _ = network.fork(&Fork { depth, include, drop, keep_on: vec![dice.node()] });
        }
        7 => {
            let change = NodeChange {
                node: dice.node(),
                lag: Some(dice.below(4)),
                branch: Some(false),
                ..NodeChange::default()
            };
            let Network { nodes, chain, .. } = network;
            nodes[change.node].change(&change, chain);
        }
        8 => network.miss(dice.below(10)),
        9 if !sent.is_empty() => network.drop_pending(&sent.last().unwrap().id.clone(), Some(dice.node())),
        _ => network.produce_next(),
    }
}

fn check(network: &Network, seed: u64) {
    let mut mined = HashSet::new();
    let mut fees_sun = 0;
    for pair in network.chain.blocks().windows(2) {
        assert_eq!(pair[1].parent, pair[0].id, "seed {seed}: parent links");
        for included in &pair[1].transactions {
            assert!(mined.insert(included.tx.id), "seed {seed}: mined twice");
            fees_sun += included.outcome.fee_sun;
        }
    }
    let world = network.chain.state(network.chain.head());
    assert!(world.accounts.values().all(|account| account.balance_sun >= 0), "seed {seed}: below zero");
    let held: i64 = world.accounts.values().map(|account| account.balance_sun).sum();
    assert_eq!(held + fees_sun, 1_010 * TRX, "seed {seed}: TRX");
    let token = &world.tokens[&address(USDT)];
    let held: u64 = [ALICE, BOB, CAROL].iter().map(|of| token.balance(&address(of)).to::<u64>()).sum();
    assert_eq!(held, 1_000 * TRX.unsigned_abs(), "seed {seed}: USDT");
}

#[test]
fn no_schedule_mines_a_transaction_twice_or_makes_money() {
    let mut mined = 0;
    for seed in 0..20 {
        let (mut network, mut sent, mut dice) = (network(3), Vec::new(), Dice(seed));
        for _ in 0..300 {
            step(&mut network, &mut sent, &mut dice);
        }
        check(&network, seed);
        mined += sent.iter().filter(|tx| network.chain.height_of(&tx.id).is_some()).count();
    }
    assert!(mined > 100, "the schedules do mine: {mined}");
}
