//! A TRC-20 contract without a virtual machine: its balances, what a call to it would do (`Effect`), and faulty behaviours.
//!
//! Execution pays for the energy, decides whether it was sufficient, and then applies the transfer.

use std::collections::BTreeMap;

use alloy_primitives::U256;
use serde::{Deserialize, Serialize};

use crate::crypto::Address;

const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
const DECIMALS: [u8; 4] = [0x31, 0x3c, 0xe5, 0x67];
const SYMBOL: [u8; 4] = [0x95, 0xd8, 0x9b, 0x41];
const NAME: [u8; 4] = [0x06, 0xfd, 0xde, 0x03];
const TOTAL_SUPPLY: [u8; 4] = [0x18, 0x16, 0x0d, 0xdd];
/// `Error(string)`.
const ERROR: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
const VIEW_ENERGY: i64 = 935;
const REVERT_ENERGY: i64 = 3_450;

/// What `transfer` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Moves, logs, returns true.
    #[default]
    Normal,
    /// Reverts.
    Revert,
    /// Succeeds, moves nothing, logs nothing, returns false.
    ReturnsFalse,
    /// Succeeds, moves nothing, logs nothing, returns true.
    NoLog,
    /// Moves and returns true without a log.
    MovesWithoutLog,
    /// Moves and logs, yet returns false, as mainnet USDT does.
    PaysReturningFalse,
    /// Burns all energy that it is given.
    OutOfEnergy,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub name: String,
    pub symbol: String,
    pub decimals: u8,
    pub balances: BTreeMap<Address, U256>,
    pub energy_to_holder: i64,
    pub energy_to_empty: i64,
    pub behaviour: Behaviour,
    /// Behaviours for single destinations, instead of `behaviour`.
    pub towards: BTreeMap<Address, Behaviour>,
}

/// Value that moved: the unit that the oracle counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// Absent for TRX.
    pub token: Option<Address>,
    pub from: Address,
    pub to: Address,
    pub amount: U256,
}

/// What a call does if its energy is sufficient.
#[derive(Clone, Debug)]
pub struct Effect {
    pub energy: i64,
    pub reverted: bool,
    pub output: Vec<u8>,
    pub transfer: Option<(Address, U256)>,
    pub logged: bool,
}

impl Token {
    pub fn new(symbol: &str, decimals: u8) -> Self {
        Self {
            name: symbol.to_owned(),
            symbol: symbol.to_owned(),
            decimals,
            balances: BTreeMap::new(),
            energy_to_holder: 64_285,
            energy_to_empty: 130_285,
            behaviour: Behaviour::Normal,
            towards: BTreeMap::new(),
        }
    }

    pub fn balance(&self, of: &Address) -> U256 {
        self.balances.get(of).copied().unwrap_or_default()
    }

    pub fn mint(&mut self, to: Address, amount: U256) {
        let balance = self.balances.entry(to).or_default();
        *balance = balance.saturating_add(amount);
    }

    /// Applies a transfer that `call` allowed, so the balance is sufficient.
    pub fn apply(&mut self, from: Address, to: Address, amount: U256) {
        let left = self.balance(&from).saturating_sub(amount);
        self.balances.insert(from, left);
        self.mint(to, amount);
    }

    /// Whether the call only reads.
    pub fn is_view(data: &[u8]) -> bool {
        data.first_chunk::<4>().is_some_and(|selector| *selector != TRANSFER)
    }

    pub fn call(&self, caller: Address, call_value_sun: i64, data: &[u8]) -> Effect {
        let Some((selector, arguments)) = data.split_first_chunk::<4>() else {
            return revert("");
        };
        if call_value_sun != 0 {
            return revert("");
        }
        match *selector {
            TRANSFER => self.transfer(caller, arguments),
            BALANCE_OF => match address(arguments, 0) {
                Some(of) => view(word(self.balance(&of))),
                None => revert(""),
            },
            DECIMALS => view(word(U256::from(self.decimals))),
            TOTAL_SUPPLY => {
                view(word(self.balances.values().fold(U256::ZERO, |sum, each| sum.saturating_add(*each))))
            }
            SYMBOL => view(text(&self.symbol)),
            NAME => view(text(&self.name)),
            _ => revert(""),
        }
    }

    fn transfer(&self, from: Address, arguments: &[u8]) -> Effect {
        let (Some(to), Some(amount)) = (address(arguments, 0), uint(arguments, 1)) else {
            return revert("");
        };
        let energy = if self.balance(&to).is_zero() { self.energy_to_empty } else { self.energy_to_holder };
        let behaviour = self.towards.get(&to).copied().unwrap_or(self.behaviour);
        if behaviour == Behaviour::Revert || self.balance(&from) < amount {
            return revert("SafeMath: subtraction overflow");
        }
        let (moves, logged, returns) = match behaviour {
            Behaviour::Normal | Behaviour::Revert | Behaviour::OutOfEnergy => (true, true, true),
            Behaviour::ReturnsFalse => (false, false, false),
            Behaviour::NoLog => (false, false, true),
            Behaviour::MovesWithoutLog => (true, false, true),
            Behaviour::PaysReturningFalse => (true, true, false),
        };
        Effect {
            energy: if behaviour == Behaviour::OutOfEnergy { i64::MAX } else { energy },
            reverted: false,
            output: word(U256::from(u8::from(returns))),
            transfer: moves.then_some((to, amount)),
            logged,
        }
    }
}

fn view(output: Vec<u8>) -> Effect {
    Effect { energy: VIEW_ENERGY, reverted: false, output, transfer: None, logged: false }
}

fn revert(reason: &str) -> Effect {
    let output = if reason.is_empty() { Vec::new() } else { [ERROR.as_slice(), &text(reason)].concat() };
    Effect { energy: REVERT_ENERGY, reverted: true, output, transfer: None, logged: false }
}

fn word(value: U256) -> Vec<u8> {
    value.to_be_bytes::<32>().to_vec()
}

/// One ABI string: offset, length, padded bytes.
fn text(value: &str) -> Vec<u8> {
    let mut encoded = [word(U256::from(32)), word(U256::from(value.len()))].concat();
    encoded.extend_from_slice(value.as_bytes());
    encoded.resize(64 + value.len().div_ceil(32) * 32, 0);
    encoded
}

fn uint(arguments: &[u8], index: usize) -> Option<U256> {
    arguments.get(index * 32..index * 32 + 32).map(U256::from_be_slice)
}

/// The upper 12 bytes are ignored, as old compilers do (and as `41..` in them needs).
fn address(arguments: &[u8], index: usize) -> Option<Address> {
    let body = arguments.get(index * 32 + 12..index * 32 + 32)?;
    Some(Address::from_body(body.try_into().ok()?))
}
